#!/bin/sh
# berth-device-check tells each promise that faulty_device.c breaks, in the check that is meant for it. Arguments: the
# program, the device.
set -u
check=$1 device=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect FAULT CHECK [SECONDS]: with that fault, that check fails; where it does not end, after so many seconds. All at once.
expect() {
    FAULT=$1 "$check" "$device" --limit "${3:-60}" --only "$2" >"$folder/$1" 2>&1 &
    echo "$1 $2" >>"$folder/expected"
}

expect nameless 'says what it is'
expect wavers 'says what it is'
expect rich 'says what it is'
expect largest 'says what it is'
expect managed 'every kind of memory'
expect combined 'every kind of memory'
expect scrambled 'every kind of memory'
expect wordless 'zero bytes and bad input'
expect located 'addresses are located'
expect registered 'memory of the program is registered'
expect between 'copies reach another device'
expect eager 'streams are asynchronous'
expect query_done 'streams are asynchronous'
expect query_busy 'streams are asynchronous'
expect event_done 'streams are asynchronous'
expect event_wait 'waits last until the end'
expect event_fresh 'streams are asynchronous'
expect call_at_once 'streams are asynchronous' 1
expect everybody 'waits are for one stream only' 1
expect synchronize 'waits last until the end'
expect call_twice 'functions and copies run in order'
expect deaf 'streams wait for events of others'
expect deaf_and_mute 'streams take turns by events'
expect later_mark 'waits are for the mark as it was' 1
expect record_once 'recording again moves the mark' 1
expect record_early 'recording again moves the mark'
expect stream_destroy 'teardown in any order' 1
expect event_destroy 'teardown in any order' 1
expect drops 'teardown in any order'
expect call_unmarked 'waiting for oneself is refused' 1
expect call_locks_out 'functions may use the device'
expect ordered 'release on a stream'
expect forked 'a forked child is answered' 1
expect eager_zero 'schedules at random'
expect shared_place 'schedules at random'
wait

failed=0
while read -r fault title; do
    grep -q "^FAIL  $title: " "$folder/$fault" && continue
    echo "fault '$fault' is not told by '$title':"
    cat "$folder/$fault"
    failed=1
done <"$folder/expected"

# Without functions most checks of streams do not apply; nothing fails.
FAULT=mute "$check" "$device" | grep -q ' 0 fail, ' || { echo "a device without functions fails"; failed=1; }
FAULT=none "$check" "$device" 2>/dev/null; [ $? = 4 ] || { echo "a fault that is none is exit 4"; failed=1; }
exit $failed
