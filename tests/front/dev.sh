#!/bin/sh
# dev.sh SOURCE_TREE SCRATCH: ./dev explains itself, refuses what it does not know, and says what is missing where
# it cannot install. Machines without packages are played by a PATH that holds only what we put there.
set -eu
tree=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin"

fail() { echo "$*" >&2; exit 1; }

# expect WANTED_CODE WORDS COMMAND...: the exit code, and words somewhere in what it says.
expect() {
    code=$1 words=$2
    shift 2
    got=0
    said=$("$@" 2>&1 </dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "'$*' exits $got, not $code: $said"
    case $said in
    *"$words"*) ;;
    *) fail "'$*' does not say '$words' but: $said" ;;
    esac
}

for command in demo test build bench lint format help; do
    expect 0 "  $command" "$tree/dev" help
done
expect 2 "there is no command 'tset'" "$tree/dev" tset
expect 1 "not '--fast'" "$tree/dev" test --fast
expect 1 "not 'cuda'" "$tree/dev" demo cuda
for runs in '' 0 ten -3; do
    expect 1 "takes how many times to run each test, not '$runs'" "$tree/dev" test --repeat "$runs"
done

# A bare machine: the shell's own tools, neither compiler nor package manager.
for tool in sh dirname printf tr cat date nproc id env; do
    path=$(command -v "$tool") || continue
    case $path in
    /*) ln -s "$path" "$work/bin/$tool" ;;
    esac
done
bare() { PATH=$work/bin "$tree/dev" "$@"; }
expect 1 "missing: gcc cmake ninja-build (Debian's names; there is no apt-get here" bare build
expect 1 "libcmocka-dev" bare test

# The same with apt and no root: it names the command to run.
fake() {
    printf '#!%s\n%s\n' "$work/bin/sh" "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
rm "$work/bin/id"
fake dpkg-query 'exit 1'
# shellcheck disable=SC2016 # they expand when the fakes run
fake apt-get 'echo "apt-get $*" >>"${0%/*}/../log"; case "$*" in *" -s "*) echo "Inst libfirst (1.0 somewhere)" ;; esac'
# shellcheck disable=SC2016
fake apt-cache '[ "$2" != pkg-config ]'
fake id 'echo 1000'
expect 1 "please run: apt-get install gcc libc6-dev cmake ninja-build" bare demo

# As root it says what it installs, takes the alternative that apt knows, and reads the lists only if it must.
rm "$work/bin/id"
fake id 'echo 0'
expect 1 "installing: gcc libc6-dev cmake ninja-build g++ pkgconf libcmocka-dev libzstd-dev libdw-dev binutils python3" bare test --quick
# What comes with them is listed first.
expect 1 "dev:   libfirst" bare test --quick
[ "$(grep -n -m 1 -e ' -s install' "$work/log" | cut -d: -f1)" -lt "$(grep -n -m 1 -e 'install -y' "$work/log" | cut -d: -f1)" ] ||
    fail "the list comes after installing"
grep -q 'install -y --no-install-recommends gcc ' "$work/log" || fail "apt-get was asked: $(cat "$work/log")"
! grep -q update "$work/log" || fail "the package lists were read without need"
fake apt-cache 'exit 1'
expect 1 "apt does not know all of: gcc" bare build
grep -q update "$work/log" || fail "unknown packages, and the lists were not read"

# With everything there nothing is asked of apt.
rm "$work/log"
fake dpkg-query 'echo installed'
expect 1 "" bare build
[ ! -e "$work/log" ] || fail "apt-get was called although nothing is missing"
