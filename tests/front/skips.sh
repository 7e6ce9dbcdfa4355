#!/bin/sh
# skips.sh SOURCE_TREE SCRATCH: tools/check_skips reports every skip, and in CI fails on those without a reason.
set -eu
tree=$1 work=$2
mkdir -p "$work"
cat >"$work/junit.xml" <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="3">
  <testcase name="passes" status="run"><system-out>[       OK ] a_case</system-out></testcase>
  <testcase name="no_gpu" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
  <testcase name="inner" status="run"><system-out>[ RUN      ] one_case
[  SKIPPED ] one_case
[       OK ] other_case
[  SKIPPED ] 1 test(s).
</system-out></testcase>
</testsuite>
END
fail() { echo "$*" >&2; exit 1; }

echo '# nothing' >"$work/none"
said=$(env -u CI "$tree/tools/check_skips" "$work/junit.xml" "$work/none")
[ "$said" = "skipped: no_gpu (not in tests/allowed_skips)
skipped: inner:one_case (not in tests/allowed_skips)" ] || fail "it said: $said"
! CI=true "$tree/tools/check_skips" "$work/junit.xml" "$work/none" 2>/dev/null || fail "CI let skips pass"

printf 'no_* there is no GPU here\ninner:one_case needs the moon\n' >"$work/both"
CI=true "$tree/tools/check_skips" "$work/junit.xml" "$work/both" || fail "allowed skips failed"

echo 'no_gpu' >"$work/reasonless"
! "$tree/tools/check_skips" "$work/junit.xml" "$work/reasonless" 2>/dev/null || fail "a skip needs a reason"
