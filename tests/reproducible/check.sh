#!/bin/sh
# check.sh TREE BUILD CMAKE CC: a copy of the tree in another folder, built anew, gives the bytes that BUILD has: the libraries, and
# the command. Where BUILD was made through a launcher (ccache may rewrite the names of files) two copies are compared.
set -eu
tree=$1 build=$2 cmake=$3 cc=$4
work=$build/tests/reproducible
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
setting() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
type=$(setting CMAKE_BUILD_TYPE)
type_flags=CMAKE_C_FLAGS_$(printf '%s' "$type" | tr '[:lower:]' '[:upper:]')

# build_copy FOLDER
build_copy() {
    rm -rf "$1"
    mkdir -p "$1/tree"
    (cd "$tree" && tar -cf - CMakeLists.txt cmake include src cli format preload viewer tests/devices tests/*.h LICENSE README.md CHANGELOG.md docs completions) |
        (cd "$1/tree" && tar -xf -)
    "$cmake" -S "$1/tree" -B "$1/out" -G "$(setting CMAKE_GENERATOR)" "-DCMAKE_BUILD_TYPE=$type" "-DCMAKE_C_COMPILER=$cc" \
        "-DCMAKE_C_FLAGS=$(setting CMAKE_C_FLAGS)" "-D$type_flags=$(setting "$type_flags")" \
        -DBERTH_BUILD_TESTS=OFF -DBERTH_BUILD_EXAMPLES=OFF -DBERTH_BUILD_BINDINGS=OFF >"$1/configure.log"
    "$cmake" --build "$1/out" >"$1/build.log" || { tail -n 30 "$1/build.log" >&2; exit 1; }
}

build_copy "$work/another/folder"
first=$build
if [ -n "$(setting CMAKE_C_COMPILER_LAUNCHER)" ]; then
    build_copy "$work/one"
    first=$work/one/out
fi
bad=0
for file in libberth.so libberth.a berth berth-device-check; do
    cmp "$first/$file" "$work/another/folder/out/$file" || bad=1
done
rm -rf "$work/another" "$work/one"
exit "$bad"
