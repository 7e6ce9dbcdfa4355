#!/bin/sh
# check.sh PROGRAM: the program does what BERTH_CONF, BERTH_LOG and BERTH_SHOW_STATS say.
set -eu
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset BERTH_CONF BERTH_LOG BERTH_SHOW_STATS

# run [ARGUMENT]: leaves its output in $work/out and $work/err.
run() { "$program" "$@" >"$work/out" 2>"$work/err" || { echo "the program failed: $(cat "$work/err")" >&2; exit 1; }; }

# says FILE WORDS, and silent FILE
says() { grep -qF -- "$2" "$work/$1" || { echo "$1 does not say '$2' but: $(cat "$work/$1")" >&2; exit 1; }; }
silent() { [ ! -s "$work/$1" ] || { echo "$1 should be empty but says: $(cat "$work/$1")" >&2; exit 1; }; }

run
says out "2000: BERTH_OK"
silent err

# As docs/cookbook.md shows it.
BERTH_CONF='limit=64M;guard=yes;explain=yes' BERTH_SHOW_STATS=1 "$program" >"$work/out" 2>"$work/err"
says out "3000: BERTH_OK"
says err "BERTH_CONF"

export BERTH_CONF='limit=4K'
run
says out "3000: BERTH_OK"
says out "2000: BERTH_OVER_BUDGET"
says out "first layer"

# What is live at the end is told where full figures are asked for.
export BERTH_CONF='stats=full' BERTH_SHOW_STATS=1
run leak
says err "berth: live: "
says err "forgotten"
unset BERTH_SHOW_STATS

# Blanks and empty parts do no harm; labels need a list of blocks, which full figures keep.
export BERTH_CONF=' stats=full ; limit=4096; explain=yes;;'
run
says out "to make it fit: free 904 bytes (first layer alone holds 3 KiB (3072 bytes)), or raise the limit to 4.88 KiB (5000 bytes)"
says err "berth: warning: out of memory: 1.95 KiB (2000 bytes) for first layer"

export BERTH_LOG="none"
run
silent err
export BERTH_LOG="warning:$work/log"
run
silent err
says log "out of memory: 1.95 KiB (2000 bytes)"
export BERTH_LOG="warnings"
run
says err "there is no level 'warnings'; did you mean 'warning'?"
export BERTH_LOG="warning:$work/no/such/folder"
run
says err "cannot be opened"
unset BERTH_LOG

export BERTH_CONF='guard=yes'
run twice
says out "again: BERTH_BAD_FREE"
says err "double free"
says err "label first layer"

export BERTH_CONF="event_log=$work/events.csv;scopes=yes" BERTH_SHOW_STATS=1
run
says events.csv "time_ns,thread,event,address"
says events.csv ",3000,64,first layer,,OK"
says err "BERTH_CONF"
says err "allocations"
grep -Eq '^berth: first layer +0 +5000 +5000 +1$' "$work/err" || { echo "no peak of 5000: $(cat "$work/err")" >&2; exit 1; }
unset BERTH_SHOW_STATS

# A mistake names the nearest key and is ignored as a whole.
export BERTH_CONF='limit=4K;gaurd=yes'
run
says err "there is no setting 'gaurd'; did you mean 'guard'?"
says out "2000: BERTH_OK"
export BERTH_CONF='limit=many'
run
says err "limit takes BYTES, not 'many'"
export BERTH_CONF='something quite different=1'
run
says err "'berth help environment' lists them all"
