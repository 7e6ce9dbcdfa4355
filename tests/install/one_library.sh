#!/bin/sh
# one_library.sh CMAKE TREE FOLDER GENERATOR CC: BUILD_SHARED_LIBS chooses which library is installed, and berth::berth is it; where it
# is not set both are. Nothing is built.
set -eu
cmake=$1 tree=$2 work=$3 generator=$4 cc=$5
rm -rf "$work"
mkdir -p "$work"
for choice in unset ON OFF; do
    set -- -DBERTH_BUILD_TESTS=OFF -DBERTH_BUILD_EXAMPLES=OFF -DBERTH_BUILD_BINDINGS=OFF "-DCMAKE_C_COMPILER=$cc"
    [ "$choice" = unset ] || set -- "$@" "-DBUILD_SHARED_LIBS=$choice"
    "$cmake" -S "$tree" -B "$work/$choice" -G "$generator" "$@" >"$work/$choice.log"
    found=$(sed -n 's|.*/\(libberth\.[a-z]*\)".*|\1|p' "$work/$choice/cmake_install.cmake" | sort -u | tr '\n' ' ')
    names=$(cat "$work/$choice"/CMakeFiles/Export/*/berth-targets.cmake | sed -n 's/^add_library(\(berth::[a-z]*\) \([A-Z]*\) .*/\1=\2/p' | sort | tr '\n' ' ')
    case $choice in
    unset) wanted="libberth.a libberth.so | berth::berth=SHARED berth::static=STATIC " ;;
    ON) wanted="libberth.so | berth::berth=SHARED " ;;
    OFF) wanted="libberth.a | berth::berth=STATIC " ;;
    esac
    [ "$found| $names" = "$wanted" ] || { echo "BUILD_SHARED_LIBS $choice installs $found| $names" >&2; exit 1; }
done
# Nor what belongs to a command that is not built.
"$cmake" -S "$tree" -B "$work/library" -G "$generator" -DBERTH_BUILD_TESTS=OFF -DBERTH_BUILD_EXAMPLES=OFF -DBERTH_BUILD_BINDINGS=OFF \
    -DBERTH_BUILD_CLI=OFF "-DCMAKE_C_COMPILER=$cc" >"$work/library.log"
! grep -E 'man1|completions|bin/berth' "$work/library/cmake_install.cmake" || { echo "a command's files are installed without it" >&2; exit 1; }
