#!/bin/sh
# layout.sh CC SOURCE_TREE FETCHED SCRATCH: layout.c against the headers in the fetched package.
set -eu
cc=$1 tree=$2 headers=$3/tfjs-tflite-node/cc_deps/include scratch=$4
[ -d "$headers" ] || { echo "$headers is absent (tools/runtimes tflite)"; exit 77; }
mkdir -p "$scratch"
"$cc" -std=c11 -I"$headers" -I"$tree/bindings/tflite" -o "$scratch/layout" "$tree/tests/tflite/layout.c"
"$scratch/layout"
