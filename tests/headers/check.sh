#!/bin/sh
# check.sh INCLUDE_DIR COMPILER...: every public header compiles with nothing before it and no warning [X4].
set -eu
include=$1
shift
bad=0 seen=0
for header in "$include"/berth/*.h; do
    seen=$((seen + 1))
    name=berth/$(basename "$header")
    # Twice: a header without its guard shows here.
    printf '#include "%s"\n#include "%s"\n' "$name" "$name" |
        "$@" -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror -fsyntax-only -I "$include" - || {
        echo "[X4] $name does not compile alone with: $*" >&2
        bad=1
    }
done
[ "$seen" -gt 0 ] || { echo "no headers in $include/berth" >&2; exit 1; }
exit "$bad"
