#!/bin/sh
# run.sh BERTH [--rewrite] [CASE...]: runs every command in cases/*.cmd in a copy of data/ and compares what it says
# and how it exits with cases/*.out. Times are masked. --rewrite takes what came as what is expected: look at the
# difference before you commit it.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# The command runs elsewhere, and a name without a folder is looked up.
berth=$(command -v -- "$1") || { echo "$0: there is no '$1'" >&2; exit 2; }
case $berth in /*) ;; *) berth=$PWD/$berth ;; esac
shift
rewrite=no
if [ "${1:-}" = --rewrite ]; then
    rewrite=yes
    shift
fi
[ $# -gt 0 ] || set -- "$here"/cases/*.cmd

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$berth" "$work/bin/berth"
PATH=$work/bin:$PATH
LC_ALL=C.UTF-8
TERM=dumb
export PATH LC_ALL TERM
unset NO_COLOR COLUMNS || true

# Whatever depends on the clock.
mask() {
    sed -e 's/planned in [0-9.]* [mu]*s by/planned in TIME by/' -e 's/"seconds": [0-9.]*/"seconds": TIME/'
}

failed=0
for file in "$@"; do
    name=$(basename "$file" .cmd)
    rm -rf "$work/data"
    cp -R "$here/data" "$work/data"
    code=0
    (cd "$work/data" && sh "$here/cases/$name.cmd") >"$work/out" 2>"$work/err" </dev/null || code=$?
    {
        mask <"$work/out"
        [ ! -s "$work/err" ] || { echo "--- stderr"; mask <"$work/err"; }
        echo "--- exit $code"
    } >"$work/got"
    if [ "$rewrite" = yes ]; then
        cp "$work/got" "$here/cases/$name.out"
    elif ! diff -u "$here/cases/$name.out" "$work/got" >"$work/diff" 2>&1; then
        echo "$name: not what was expected:"
        cat "$work/diff"
        failed=$((failed + 1))
    fi
done
[ "$failed" -eq 0 ] || { echo "$failed case(s) failed; $0 BERTH --rewrite takes the new output"; exit 1; }
