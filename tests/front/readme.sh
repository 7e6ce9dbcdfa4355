#!/bin/sh
# readme.sh SOURCE_TREE PROGRAM: the program in the README is the one in examples/hello, and says what the README says.
set -eu
tree=$1 program=$2
fail() { printf '%s\n' "$*" >&2; exit 1; }

shown=$(awk '/^```c$/ { on = 1; next } /^```$/ { exit } on' "$tree/README.md")
[ -n "$shown" ] || fail "README.md shows no C program"
[ "$shown" = "$(tail -n +2 "$tree/examples/hello/hello.c")" ] || fail "README.md and examples/hello/hello.c differ"

# Addresses differ from run to run.
mask() { sed 's/0x[0-9a-f]*/ADDRESS/'; }
said=$("$program" 2>&1 | mask)
promised=$(awk '/^```$/ { after = 1; next } after && /^    / { print substr($0, 5); seen = 1; next } seen { exit }' \
    "$tree/README.md" | mask)
[ "$said" = "$promised" ] || fail "the program says:
$said
but the README promises:
$promised"
