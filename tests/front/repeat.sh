#!/bin/sh
# repeat.sh SOURCE_TREE SCRATCH: tools/repeat finds the test that fails now and then, and runs what it was asked for.
set -eu
tree=$1 work=$2
fail() { echo "$*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
echo 'BERTH_SANITIZE:STRING=' >"$work/CMakeCache.txt"
# A test that fails in its third run, one that never does, one that hangs, and one that is skipped.
cat >"$work/flaky.sh" <<'END_FLAKY'
echo run >>"$1"
[ "$(wc -l <"$1")" -ne 3 ] || { echo "the third run"; exit 1; }
END_FLAKY
cat >"$work/CTestTestfile.cmake" <<END_TESTS
add_test(flaky sh "$work/flaky.sh" "$work/count")
set_tests_properties(flaky PROPERTIES LABELS "threads;slow")
add_test(steady sh -c "[ \$WORD = yes ]")
set_tests_properties(steady PROPERTIES LABELS threads ENVIRONMENT WORD=yes)
add_test(unlabelled sh -c "exit 1")
add_test(hangs sleep 1000)
set_tests_properties(hangs PROPERTIES TIMEOUT 0.1)
add_test(skipped sh -c "exit 77")
set_tests_properties(skipped PROPERTIES LABELS threads SKIP_RETURN_CODE 77)
END_TESTS

# expect CODE WORDS ARGUMENT...
expect() {
    code=$1 words=$2
    shift 2
    got=0
    said=$("$tree/tools/repeat" "$work" "$@" 2>&1) || got=$?
    [ "$got" -eq "$code" ] || fail "repeat $* exits $got, not $code: $said"
    case $said in
    *"$words"*) ;;
    *) fail "repeat $* does not say '$words' but: $said" ;;
    esac
}

expect 0 "2 of 2 passed  steady" 2 '^steady$'
expect 1 "3 tests, 9 runs in" 4
rm "$work/count"
expect 1 "3 of 4 passed  flaky  run 3: exit code 1" 4
grep -q 'the third run' "$work/repeat/flaky.log" || fail "the output of the failed run was not kept"
rm "$work/count"
expect 1 "1 flake or fail: flaky" 4
expect 0 "skipped" 3 skipped
expect 1 "no end after 0 s" 1 hangs
expect 1 "0 of 1 passed  unlabelled" 1 unlabelled
expect 2 "no test matches 'nothing_like_it'" 1 nothing_like_it
expect 2 "tools/repeat BUILD_FOLDER RUNS" none
expect 2 "tools/repeat BUILD_FOLDER RUNS" 0
