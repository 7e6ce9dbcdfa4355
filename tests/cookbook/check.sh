#!/bin/sh
# check.sh COOKBOOK CC INCLUDE LIBRARY [FLAG...]: takes each ```c piece out, puts it into a function, builds and runs it.
set -eu
book=$1 cc=$2 include=$3 library=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset BERTH_CONF BERTH_LOG BERTH_SHOW_STATS

awk -v work="$work" '
    /^#+ / { title = $0 }
    /^```c$/ { file = sprintf("%s/%02d.c", work, ++n); inside = 1
               print "/*" title " */\n#include <berth/berth.h>\n#include <stdio.h>\n#include <stdlib.h>\n\nint main(void)\n{" >file; next }
    /^```$/ && inside { print "    return 0;\n}" >file; close(file); inside = 0; next }
    inside { lines[n]++; print >file }
    END { for (i = 1; i <= n; i++) if (lines[i] > 13) { print title " is longer than it should be: " lines[i]; exit 1 } }
' "$book"

count=0
for source in "$work"/*.c; do
    program=${source%.c}
    "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wno-misleading-indentation -Werror "$@" -I"$include" "$source" \
        "$library" -lpthread -ldl -lm -o "$program" || { head -1 "$source" >&2; exit 1; }
    "$program" >"$work/out" 2>&1 || { head -1 "$source" >&2; cat "$work/out" >&2; exit 1; }
    count=$((count + 1))
done
[ $count -ge 14 ] || { echo "only $count pieces of code in $book" >&2; exit 1; }
# Sections for people who look for one: each source and decorator has its own.
for name in System Fixed Adapter "Dry run" Mapped Tracking Limit Retry "Failure callback" "Event log" Guard Explain Scopes; do
    grep -q "^### $name:" "$book" || { echo "the cookbook has no section on $name" >&2; exit 1; }
done
