#!/bin/sh
# demo.sh DEMO FOLDER PLAN: the demo at one size: outputs equal, runs planned, and a map.
set -eu
[ -e "$2/onnxruntime-node/.berth_version" ] || { echo "ONNX Runtime is not there: tools/runtimes onnxruntime fetches it"; exit 77; }
out=$("$1" "$2" "$3" 1)
printf '%s\n' "$out"
for words in 'outputs are equal bit for bit' 'runs recorded: 1, replayed: 10' ' 0 otherwise' 'MiB │'; do
    printf '%s\n' "$out" | grep -q -- "$words" || { echo "missing: $words"; exit 1; }
done
