#!/bin/sh
# berth-device-check tells what is wrong with a device: each fault of broken_device fails the check that is meant for it, and
# a crash or a hang fails one check and not the program. Arguments: the program, the broken device, a good one,
# and the command, which lists what it is told to load.
set -u
check=$1 broken=$2 good=$3 berth=$4
failed=0

# expect FAULT EXIT WORDS [SECONDS]: with that fault, that exit and a line with these words.
expect() {
    said=$(BROKEN=$1 "$check" "$broken" --limit "${4:-60}" 2>&1)
    code=$?
    if [ "$code" != "$2" ] || ! echo "$said" | grep -q "$3"; then
        echo "fault '$1': exit $code, expected $2 and '$3':"
        echo "$said"
        failed=1
    fi
}

expect none 0 '^skip  streams are asynchronous: the device has no streams'
expect none 0 ' 0 fail'
expect empty 1 '^FAIL  every kind of memory.*gave none'
expect overlap 1 '^FAIL  overlapping copies move'
expect short 1 '^FAIL  zero fills exactly'
expect crash 1 '^FAIL  zero fills exactly: the process ended by signal 6'
expect hang 1 '^FAIL  zero fills exactly: it was not done after 1 s' 1
expect entry 4 'no driver here'

# The same faults leave the other checks alone.
BROKEN=short "$check" "$broken" | grep -q '^ok    overlapping copies move' || { echo "one fault failed another check"; failed=1; }

"$check" "$good" --seed 7 >/dev/null || { echo "a good device fails"; failed=1; }
"$check" --list | grep -q '^many threads$' || { echo "--list lists nothing"; failed=1; }
"$check" "$good" --only overlapping | grep -q '^1 hold, 0 fail, 0 do not apply$' || { echo "--only runs others too"; failed=1; }
"$check" "$good" --only nonsense >/dev/null 2>&1; [ $? = 2 ] || { echo "no such check is exit 2"; failed=1; }
"$check" /nowhere.so 2>/dev/null; [ $? = 4 ] || { echo "a library that is not there is exit 4"; failed=1; }
"$check" 2>/dev/null; [ $? = 2 ] || { echo "no library is exit 2"; failed=1; }
"$check" "$good" --seed x 2>/dev/null; [ $? = 2 ] || { echo "a bad number is exit 2"; failed=1; }

"$berth" devices --load "$good" | grep -q '^threaded:0  the host' || { echo "berth devices does not list it"; failed=1; }
"$berth" devices --json --load "$good" --load "$broken" | grep -q '"kind": *"broken"' || { echo "nor as JSON"; failed=1; }
"$berth" devices --load "$good" --load "$good" 2>&1 | grep -q "'threaded' already" || { echo "one name was given twice"; failed=1; }
"$berth" devices --load /nowhere.so 2>/dev/null; [ $? = 4 ] || { echo "berth: a library that is not there is exit 4"; failed=1; }
exit $failed
