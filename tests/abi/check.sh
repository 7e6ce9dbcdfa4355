#!/bin/sh
# check.sh TREE LIBRARY FOLDER [--renew]: the library's interface is that of the last release (tests/abi/libberth.abi), or more.
# With --renew, at a release: writes the description anew.
set -eu
tree=$1 library=$2 work=$3 renew=${4:-}
command -v abidiff >/dev/null || { echo "abidiff (abigail-tools) is not installed"; exit 77; }
here=$tree/tests/abi
mkdir -p "$work"
fail() { printf '%s\n' "$*" >&2; exit 1; }

readelf --debug-dump=info "$library" 2>/dev/null | head -n 20 | grep -q DW_TAG || { echo "$library has no debug information"; exit 77; }
# What programs only have pointers to may change inside.
opaque=$(sed -n 's/^typedef struct \(berth_[a-z_]*\) \1;$/\1/p' "$tree"/include/berth/*.h | paste -sd'|')
printf '[suppress_type]\n  type_kind = struct\n  name_regexp = ^(%s|berth__.*)$\n  drop = yes\n' "$opaque" >"$work/opaque"
abidw --suppressions "$work/opaque" --exported-interfaces-only --no-corpus-path --no-comp-dir-path --no-show-locs \
    --headers-dir "$tree/include" --drop-private-types --out-file "$work/now.abi" "$library"
version=$(sed -n 's/^#define BERTH_VERSION_\(MAJOR\|MINOR\) //p' "$tree/include/berth/version.h" | paste -sd.)
number=$(sed -n 's/^set(berth_abi \([0-9]*\))$/\1/p' "$tree/CMakeLists.txt")
readelf -d "$library" | grep -q "soname: \[libberth.so.$number\]" || fail "the library's SONAME is not libberth.so.$number"
if [ "$renew" = --renew ]; then
    cp "$work/now.abi" "$here/libberth.abi"
    echo "$version $number" >"$here/release"
    exit 0
fi

read -r released released_number <"$here/release"
if [ "$number" -gt "$released_number" ]; then
    echo "SONAME $number, the last release $released had $released_number: programs are linked anew"
    exit 0
fi
# Before 1.0 every minor version has a name of its own.
case $version in
0.*) [ "$version" = "$released" ] || fail "version $version follows $released: berth_abi in CMakeLists.txt must be $((released_number + 1))" ;;
esac
# Structs that begin with struct_size may grow at their end: who fills one says how long its own is, and who reads one is given no
# more than it has room for.
sized=$(cat "$tree"/include/berth/*.h | awk '/^typedef struct berth_[a-z_]* \{/ { name = $3; next } name && /^ *size_t struct_size;/ { print name }
    { name = "" }' | paste -sd'|')
printf '[suppress_type]\n  type_kind = struct\n  name_regexp = ^(%s)$\n  has_data_member_inserted_at = end\n' "$sized" >"$work/grows"
abidiff --no-added-syms --suppressions "$work/grows" "$here/libberth.abi" "$work/now.abi" >"$work/difference" || {
    cat "$work/difference" >&2
    fail "programs linked with $released would break: take the change back, or raise berth_abi in CMakeLists.txt with the next minor version"
}
echo "as $released, or more"
