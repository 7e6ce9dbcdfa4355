#!/bin/sh
# check_help.sh BERTH PROGRAM: `berth help environment` names every variable and every key that the library knows.
set -eu
help=$("$1" help environment)
for word in BERTH_CONF BERTH_LOG BERTH_SHOW_STATS; do
    printf '%s\n' "$help" | grep -q "$word" || { echo "the topic does not name $word" >&2; exit 1; }
done
keys=$("$2" keys | cut -f1)
[ "$(printf '%s\n' "$keys" | wc -l)" -ge 10 ] || { echo "too few keys: $keys" >&2; exit 1; }
for key in $keys; do
    printf '%s\n' "$help" | grep -q "^    $key=" || { echo "the topic does not name $key" >&2; exit 1; }
done
[ "$(printf '%s\n' "$help" | grep -c '^    [a-z_]*=')" -eq "$(printf '%s\n' "$keys" | wc -l)" ] ||
    { echo "the topic names keys that there are not" >&2; exit 1; }
