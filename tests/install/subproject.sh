#!/bin/sh
# subproject.sh CMAKE TREE FOLDER GENERATOR CC: Berth inside another project adds libraries to it and nothing else: no settings, no install
# rules, no targets of common names. Nothing is built.
set -eu
cmake=$1 tree=$2 work=$3 generator=$4 cc=$5
rm -rf "$work"
mkdir -p "$work"
for way in add fetch; do
    for install in OFF ON; do
        build=$work/$way-$install
        set -- "-DCMAKE_C_COMPILER=$cc" "-DBERTH_TREE=$tree" "-DWAY=$way"
        [ "$install" = OFF ] || set -- "$@" -DBERTH_INSTALL=ON
        "$cmake" -S "$tree/tests/install/around" -B "$build" -G "$generator" "$@" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
        grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=$' "$build/CMakeCache.txt" || { echo "$way: the build's type has changed" >&2; exit 1; }
        rules=$(find "$build" -name cmake_install.cmake -exec cat {} + | grep -c libberth || true)
        case $install,$rules in
        OFF,0 | ON,[1-9]*) ;;
        *) echo "$way, BERTH_INSTALL $install: $rules lines install libberth" >&2; exit 1 ;;
        esac
    done
done
