#!/bin/sh
# check.sh INCLUDE_DIR BINDINGS_DIR COMPILER...: every public header compiles with nothing before it and no warning [X4], and
# every struct that begins with its size has a first value, NAME_INIT, which names all of its members.
set -eu
include=$1 bindings=$2
shift 2
bad=0 seen=0

sized_structs() {
    awk '$1 == "typedef" && $2 == "struct" { name = $3; next }
         name != "" && $1 == "size_t" && $2 == "struct_size;" { print name }
         NF { name = "" }' "$1"
}

initial_of() { echo "$1" | tr '[:lower:]' '[:upper:]' | sed 's/$/_INIT/'; }

for header in "$include"/berth/*.h; do
    seen=$((seen + 1))
    name=berth/$(basename "$header")
    # Twice: a header without its guard shows here.
    printf '#include "%s"\n#include "%s"\n' "$name" "$name" |
        "$@" -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror -fsyntax-only -I "$include" - || {
        echo "[X4] $name does not compile alone with: $*" >&2
        bad=1
    }
    # A member that the list leaves out is a warning here.
    structs=$(sized_structs "$header")
    [ -z "$structs" ] || {
        printf '#include "%s"\n' "$name"
        for struct in $structs; do
            printf 'void first_%s(void);\nvoid first_%s(void)\n{\n    %s value = %s;\n    (void)value;\n}\n' \
                "$struct" "$struct" "$struct" "$(initial_of "$struct")"
        done
    } | "$@" -Wall -Wextra -pedantic -Werror -fsyntax-only -I "$include" - || {
        echo "a sized struct of $name has no whole first value" >&2
        bad=1
    }
done
for header in "$bindings"/*/*.h; do
    for struct in $(sized_structs "$header"); do
        initial=$(initial_of "$struct")
        grep -q "#define $initial " "$header" || { echo "$header: $struct has no $initial" >&2; bad=1; }
    done
done
[ "$seen" -gt 0 ] || { echo "no headers in $include/berth" >&2; exit 1; }
exit "$bad"
