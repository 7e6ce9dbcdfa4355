#!/bin/sh
# check.sh asan|valgrind PROGRAM: every deliberate fault is reported, and nothing else is.
# check.sh types PROGRAM: the program succeeds under Valgrind.
set -eu
tool=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset BERTH_CONF BERTH_LOG BERTH_SHOW_STATS
bad=0
complain() { echo "$*" >&2; bad=1; }

if [ "$tool" = asan ]; then
    for subject in guard fixed host_cache planned; do
        "$program" $subject none 2>"$work/err" || complain "$subject, no fault, and yet: $(head -20 "$work/err")"
        for fault in overflow use_after_free; do
            if "$program" $subject $fault 2>"$work/err"; then
                complain "$subject: AddressSanitizer let the $fault pass"
            else
                grep -q "AddressSanitizer: use-after-poison" "$work/err" ||
                    complain "$subject, $fault: no report but: $(head -20 "$work/err")"
            fi
        done
    done
    exit $bad
fi

command -v valgrind >/dev/null 2>&1 || { echo "valgrind is not installed" >&2; exit 77; }
if [ "$tool" = types ]; then
    valgrind -q "$program"
    exit
fi
# Its own report of each error stands between the program's lines "case SUBJECT FAULT".
valgrind --leak-check=no "$program" all 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
grep -q "case end" "$work/err" || { cat "$work/err" >&2; exit 1; }
reports() { sed -n "/^case $1 $2\$/,/^case /p" "$work/err" | grep -Ec 'Invalid (read|write) of size' || true; }
for subject in guard fixed host_cache planned; do
    [ "$(reports $subject none)" -eq 0 ] || complain "$subject: a report where there is no fault"
    for fault in overflow use_after_free; do
        [ "$(reports $subject $fault)" -ge 1 ] || complain "$subject: Valgrind let the $fault pass"
    done
done
[ $bad -eq 0 ] || cat "$work/err" >&2
exit $bad
