#!/bin/sh
# complete.sh LIBRARY PROGRAM FOLDER: every function that libberth.so exports has a row in the table, and no other.
set -eu
mkdir -p "$3"
nm -D --defined-only "$1" | awk '$2 == "T" || $2 == "W" { sub(/@.*/, "", $3); print $3 }' | sort >"$3/exported"
"$2" --list | sort >"$3/rows"
[ -s "$3/exported" ] || { echo "found no exported function in $1" >&2; exit 1; }
diff "$3/exported" "$3/rows" >"$3/difference" ||
    { echo "functions without a row (<), rows without a function (>):"; cat "$3/difference"; exit 1; } >&2
