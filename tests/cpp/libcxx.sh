#!/bin/sh
# libcxx.sh TREE LIBRARY FOLDER: berth.hpp and its examples with LLVM's C++ library, the newest that is installed.
set -eu
tree=$1 library=$2 work=$3
headers=$(find /usr/lib/llvm-*/include/c++/v1 -maxdepth 0 2>/dev/null | sort -V | tail -n 1)
[ -n "$headers" ] || { echo "libc++ is not installed"; exit 77; }
command -v clang++ >/dev/null || { echo "clang++ is not installed"; exit 77; }
libraries=${headers%/include/c++/v1}/lib
mkdir -p "$work"
for source in "$tree/tests/cpp/test_cpp.cpp" "$tree"/examples/cpp/*.cpp; do
    program=$work/$(basename "$source" .cpp)
    clang++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -nostdinc++ -isystem "$headers" -stdlib=libc++ -I "$tree/include" \
        -L "$libraries" "-Wl,-rpath,$libraries" "$source" "$library" -lpthread -ldl -o "$program"
    "$program" >"$program.log" || { cat "$program.log"; echo "$source fails with $headers" >&2; exit 1; }
done
echo "with $headers"
