#!/bin/sh
# check.sh cmake|pkgconfig CMAKE BUILD_DIR CONSUMER_DIR CC: berth, once installed, is found and works.
set -eu
way=$1 cmake=$2 build=$3 consumer=$4 cc=$5
work=$build/tests/install-$way
prefix="$work/the prefix" # a space must do no harm
rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log"

lib=$(dirname "$(find "$prefix" -name libberth.a)")
version=$("$prefix/bin/berth" --version)
echo "$version"

# expect_runs PROGRAM: it runs and says what the library says.
expect_runs() {
    said=$(LD_LIBRARY_PATH=$lib "$1")
    [ "$said" = "no such thing is known here" ] || { echo "$1 said: $said" >&2; exit 1; }
}

case $way in
cmake)
    # The generator that is surely there; make, CMake's first choice, may not be.
    generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
    "$cmake" -S "$consumer" -B "$work/build" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/configure.log"
    "$cmake" --build "$work/build" >"$work/build.log"
    expect_runs "$work/build/with_berth"
    expect_runs "$work/build/with_static"
    ;;
pkgconfig)
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    [ "berth $(pkg-config --modversion berth)" = "$version" ] || { echo "berth.pc has another version" >&2; exit 1; }
    # pkg-config answers a list of words for a shell
    eval "set -- $(pkg-config --cflags --libs berth)"
    "$cc" "$consumer/consumer.c" -o "$work/shared" "$@"
    eval "set -- $(pkg-config --static --cflags --libs berth)"
    "$cc" -static "$consumer/consumer.c" -o "$work/static" "$@"
    expect_runs "$work/shared"
    expect_runs "$work/static"
    ;;
esac

# Not with sanitizers. The system's loader takes no path with a space in LD_PRELOAD, and that is said.
if [ -e "$build/libberth_malloc.so" ]; then
    said=$("$prefix/bin/berth" run -- true 2>&1) && { echo "a path that cannot be preloaded is not refused" >&2; exit 1; }
    case $said in
    *"LD_PRELOAD cannot name a path"*) ;;
    *) echo "a path that cannot be preloaded: $said" >&2; exit 1 ;;
    esac
    cp -R "$prefix" "$work/prefix" # and what is installed can be moved
    "$work/prefix/bin/berth" run --report "$work/report" -- true
    grep -q '^berth: malloc of true' "$work/report" || { echo "libberth_malloc.so is not installed, or not found" >&2; exit 1; }
fi

for file in LICENSE README.md CHANGELOG.md docs/cpp.md; do
    [ -f "$prefix/share/doc/berth/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
[ -f "$prefix/include/berth/berth.hpp" ] || { echo "berth.hpp is not installed" >&2; exit 1; }
# Every binding that was built: its library, its header, and all of a Python package, the mark that it has types included.
for library in "$build"/bindings/*/libberth_*.so; do
    [ -e "$library" ] || continue # none was built
    name=$(basename "$library" .so)
    name=${name#lib}
    for file in "lib$name.so" "$name.h"; do
        [ -n "$(find "$prefix" -name "$file")" ] || { echo "$file is not installed" >&2; exit 1; }
    done
done
if [ -e "$build/bindings/pytorch/libberth_torch.so" ]; then
    package=$(dirname "$0")/../../bindings/pytorch/berth_torch
    for file in "$package"/*.py "$package/py.typed"; do
        [ -n "$(find "$prefix" -path "*/berth_torch/$(basename "$file")")" ] || { echo "$file is not installed" >&2; exit 1; }
    done
fi
"$cmake" -DMANIFEST="$build/install_manifest.txt" -P "$(dirname "$0")/../../cmake/uninstall.cmake" >"$work/uninstall.log" 2>&1
left=$(find "$prefix" ! -type d)
[ -z "$left" ] || { echo "uninstalling leaves: $left" >&2; exit 1; }
