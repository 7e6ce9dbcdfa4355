#!/bin/sh
# check.sh QUESTION BUILD_DIR HEADERS: what the libraries export and need is what docs/invariants.md [X1]-[X3] say.
set -eu
question=$1 build=$2 headers=$3

# Names that the shared library defines for others; the version node itself is not a function.
exported() { nm -D --defined-only "$build/libberth.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }'; }

# refuse WHAT: fails if there is any line on stdin.
refuse() {
    bad=$(cat)
    [ -z "$bad" ] || { printf '%s:\n%s\n' "$1" "$bad" >&2; exit 1; }
}

case $question in
exports)
    [ -n "$(exported)" ] || { echo "libberth.so exports nothing" >&2; exit 1; }
    exported | { grep -v '^berth_[a-z0-9]' || true; } | refuse "[X1] exported, but not berth_*, or berth__*"
    ;;
needed)
    readelf -d "$build/libberth.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        { grep -Ev '^(libc\.so|libpthread\.so|libdl\.so|ld-linux|libc\.musl)' || true; } |
        refuse "[X2] libberth.so needs more than libc, pthreads and dl"
    ;;
archive)
    nm -g --defined-only "$build/libberth.a" | awk 'NF == 3 && $2 != "A" { print $3 }' |
        { grep -v '^berth_' || true; } | refuse "[X1] libberth.a gives programs names that are not ours"
    ;;
declared)
    # A function that a header promises and nobody wrote would only show when a user links.
    exported | sort >"$build/symbols-exported"
    cat "$headers"/*.h | tr '\n' ' ' | grep -oE 'BERTH_API[^;{]*[;{]' |
        sed -nE 's/.*[ *](berth_[a-z0-9_]+)\(.*/\1/p' | sort -u >"$build/symbols-declared"
    [ -s "$build/symbols-declared" ] || { echo "found no declaration in $headers" >&2; exit 1; }
    comm -23 "$build/symbols-declared" "$build/symbols-exported" | refuse "[X3] declared, but not in libberth.so"
    ;;
*)
    echo "check.sh: no question '$question'" >&2
    exit 2
    ;;
esac
