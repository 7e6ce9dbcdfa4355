#!/bin/sh
# mutants.sh SOURCE_TREE SCRATCH: there are deliberate faults for every room, each still applies, and tools/mutants refuses what
# it cannot read.
set -eu
tree=$1 work=$2
fail() { echo "$*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work/faults"

"$tree/tools/mutants" --check || fail "see above"
count=$("$tree/tools/mutants" --list | wc -l)
[ "$count" -ge 60 ] || fail "there are only $count faults"
for room in base core count source wait wrap pool host device planner plan file replay cli; do
    [ -n "$("$tree/tools/mutants" --list --only "^$room/")" ] || fail "there is no fault for $room"
done

# expect CODE WORDS ARGUMENT...
expect() {
    code=$1 words=$2
    shift 2
    got=0
    said=$("$tree/tools/mutants" "$@" 2>&1) || got=$?
    [ "$got" -eq "$code" ] || fail "mutants $* exits $got, not $code: $said"
    case $said in
    *"$words"*) ;;
    *) fail "mutants $* does not say '$words' but: $said" ;;
    esac
}
expect 2 "no fault matches" --only nothing_like_it
printf '%s\n' '== gone' 'file dev' 'tests x' '- this is nowhere in that file' '+ nor this' >"$work/faults/room.txt"
expect 1 "no longer applies to dev" --from "$work/faults" --check
printf '%s\n' '== not unique' 'file dev' 'tests x' '- say' '+ nor this' >"$work/faults/room.txt"
expect 1 "no longer applies to dev" --from "$work/faults" --check
printf '%s\n' '== without tests' 'file dev' '- say' >"$work/faults/room.txt"
expect 1 "needs a file, tests and lines" --from "$work/faults" --check
printf '%s\n' '== x' 'flie dev' >"$work/faults/room.txt"
expect 1 "'flie' is not known" --from "$work/faults" --check
