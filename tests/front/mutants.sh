#!/bin/sh
# mutants.sh SOURCE_TREE SCRATCH: there are deliberate faults for every room, each still applies, and tools/mutants refuses what
# it cannot read.
set -eu
tree=$1 work=$2
fail() { echo "$*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work/faults"

"$tree/tools/mutants" --check || fail "see above"
list=$("$tree/tools/mutants" --list)
count=$(echo "$list" | wc -l)
[ "$count" -ge 60 ] || fail "there are only $count faults"
for room in "$tree"/src/*/ "$tree"/src/planner/*/ "$tree"/cli/ "$tree"/format/ "$tree"/preload/; do
    room=${room#"$tree"/}
    case $list in
    *" $room"*) ;;
    *) fail "there is no fault in $room" ;;
    esac
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

# A budget is spent on faults alone: with one of 25 s, 10 s a fault and 1,000 s to build, three are tried; without one, all.
python3 - "$tree/tools/mutants" <<'PYTHON' || fail "a budget is not spent on faults"
import importlib.machinery
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
tool = importlib.machinery.SourceFileLoader("mutants", sys.argv[1]).load_module()
now, tried = [0.0], []
tool.time.monotonic = lambda: now[0]


class Slow:
    def prepare(self, mutant):
        now[0] += 1000

    def attempt(self, mutant):
        now[0] += 10
        tried.append(mutant.name)
        return mutant.name != "room/1", "tried"


faults = [tool.Mutant(f"room/{number}", "here") for number in range(5)]
assert tool.try_all(faults, Slow(), 25) == ["room/1"] and len(tried) == 3, tried
assert tool.try_all(faults, Slow(), 0) == ["room/1"] and len(tried) == 8, tried
PYTHON
