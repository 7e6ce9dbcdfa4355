#!/bin/sh
# packages.sh SOURCE_TREE SCRATCH C_COMPILER CXX_COMPILER: one build folder outlives what is installed around it. It is
# configured and built where no optional package is, then each comes in turn and the folder is built again; what was
# built before and what is built now must fit together, and what the package brings must appear.
#
# The machine without packages is a folder of links, the only place where CMake and the compiler look: bin/ holds the
# few tools of a C compiler, include/ what /usr/include holds less the headers of optional packages. A package is
# installed by linking its files.
set -eu
tree=$1 work=$2 cc=$3 cxx=$4
fail() { echo "$*" >&2; exit 1; }
cannot() { echo "cannot run here: $*" >&2; exit 77; }

# A file that asks the machine while it is compiled is built anew by nothing when the answer changes.
! grep -rln '__has_include' "$tree/src" "$tree/include" "$tree/cli" "$tree/tests" --include='*.[ch]' ||
    fail "these ask for headers while they are compiled; ask in CMake, which builds anew"

for tool in ninja cmake pkg-config python3; do
    command -v "$tool" >/dev/null 2>&1 || cannot "$tool is not installed"
done
triple=$("$cc" -print-multiarch 2>/dev/null || true)
[ -d "/usr/include/${triple:-nowhere}" ] || cannot "headers are not where Debian has them"
compiler_headers=$("$cc" -print-file-name=include)
cmake=$(command -v cmake) ninja=$(command -v ninja) pkg_config=$(command -v pkg-config) python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')

rm -rf "$work"
mkdir -p "$work/bin" "$work/lib/pkgconfig" "$work/include/$triple"

# What belongs to an optional package, by its name in an include folder.
optional='valgrind|CL|cmocka.*|mimalloc.*|jemalloc|c10|torch|ATen|caffe2|hip|numa.*|benchmark'
link_headers() {
    for path in "$1"/*; do
        name=${path##*/}
        [ "$name" != "$triple" ] || continue
        printf '%s\n' "$name" | grep -Eqx "$optional" || ln -s "$path" "$2/$name"
    done
}
link_headers /usr/include "$work/include"
link_headers "/usr/include/$triple" "$work/include/$triple"
for tool in sh tail as ld ar ranlib nm strip objcopy readelf env cat sed grep tr touch mkdir rm ln ccache; do
    path=$(command -v "$tool") || continue
    ln -s "$path" "$work/bin/$tool"
done
ln -s "$(command -v "$cc")" "$work/bin/cc"

export PATH="$work/bin"
export PKG_CONFIG_LIBDIR="$work/lib/pkgconfig"
unset PKG_CONFIG_PATH CPATH C_INCLUDE_PATH LIBRARY_PATH CMAKE_PREFIX_PATH CC CXX CFLAGS CXXFLAGS || true
link=$(command -v ln)

# ---- Installing a package -----------------------------------------------------------------------------

headers() {
    for name; do
        for folder in "" "/$triple"; do
            [ ! -e "/usr/include$folder/$name" ] || $link -sfn "/usr/include$folder/$name" "$work/include$folder/$name"
        done
    done
}
# In a prefix of their own: C++ must not find the C library's headers beside them, before its own.
apart() {
    prefix=$1
    shift
    mkdir -p "$work/$prefix/include"
    for name; do
        [ ! -e "/usr/include/$name" ] || $link -sfn "/usr/include/$name" "$work/$prefix/include/$name"
    done
}
libraries() {
    for name; do
        path=/usr/lib/$triple/lib$name.so
        [ ! -e "$path" ] || $link -sfn "$path" "$work/lib/lib$name.so"
    done
}
module() { [ ! -e "/usr/lib/$triple/pkgconfig/$1.pc" ] || $link -sfn "/usr/lib/$triple/pkgconfig/$1.pc" "$work/lib/pkgconfig"; }

# ---- Building -----------------------------------------------------------------------------------------

configure() {
    "$cmake" -S "$tree" -B "$work/build" -G Ninja "-DCMAKE_MAKE_PROGRAM=$ninja" "-DCMAKE_C_COMPILER=$work/bin/cc" \
        "-DCMAKE_C_FLAGS=-O0 -nostdinc -isystem $compiler_headers -isystem $work/include/$triple -isystem $work/include" \
        -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_BUILD_TYPE=None "-DCMAKE_PREFIX_PATH=$work;$work/torch;$work/hip" \
        -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
        >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; fail "configuring fails $when"; }
}
build() { "$ninja" -C "$work/build" "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; fail "building fails $when"; }; }
has() { "$ninja" -C "$work/build" -t targets all | grep -q "^$1: phony"; }

# installed FILE TARGET...: the package has come (unless it is not on this machine, of which FILE tells); the targets
# were not there and are now, and fit together with what was built before.
installed() {
    file=$1
    shift
    for target; do
        ! has "$target" || fail "there is a $target before its package has come"
    done
    configure
    [ -e "$file" ] || { echo "passed over, not on this machine: what comes $when" >&2; return 0; }
    for target; do
        has "$target" || fail "$when there is still no $target"
    done
    build "$@"
}

when="without any package"
configure
build all
! has unit_base_stack || fail "without cmocka there are tests"

when="with valgrind"
headers valgrind
installed "$work/include/valgrind/memcheck.h" # nothing of the library changes; its test comes with cmocka

when="with pkg-config and cmocka"
$link -s "$pkg_config" "$work/bin/pkg-config"
headers cmocka.h
libraries cmocka
module cmocka
# Those that see the library's inside: what is compiled into them must be what is in the library.
inner=$(cd "$tree/tests/unit" && for file in base/test_*.c wrap/test_*.c; do
    name=${file##*/test_}
    echo "unit_${file%%/*}_${name%.c}"
done)
# shellcheck disable=SC2086 # a list of words
installed "$work/include/cmocka.h" $inner annotate_types

when="with a C++ compiler"
$link -s "$cxx" "$work/bin/c++"
installed "$cxx" replay_exceptions

when="with Python"
$link -s "$python" "$work/bin/python3"
installed "$python" model_fault_credit_1_mib

when="with OpenCL's headers"
headers CL
module OpenCL
installed "$work/include/CL" opencl_kernels

when="with mimalloc"
headers mimalloc.h
libraries mimalloc
installed "$work/lib/libmimalloc.so" heaps_mimalloc

when="with jemalloc"
headers jemalloc
libraries jemalloc
installed "$work/lib/libjemalloc.so" heaps_jemalloc

when="with HIP's headers"
apart hip hip
installed "$work/hip/include/hip" gpu_types_hip

when="with libtorch"
apart torch c10 torch ATen caffe2
libraries c10 torch_cpu
installed "$work/torch/include/c10" berth_torch
