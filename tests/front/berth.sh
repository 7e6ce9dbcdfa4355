#!/bin/sh
# berth.sh COMMAND VERSION: how the command answers before any verb runs; exit codes as `berth help exits` says.
set -eu
berth=$1 version=$2
fail() { echo "$*" >&2; exit 1; }

# expect CODE STREAM WORDS ARGUMENT...: the exit code, words on that stream, and nothing on the other.
expect() {
    code=$1 stream=$2 words=$3
    shift 3
    got=0
    if [ "$stream" = out ]; then
        said=$("$berth" "$@" 2>/dev/null) || got=$?
        other=$("$berth" "$@" 2>&1 >/dev/null) || true
    else
        said=$("$berth" "$@" 2>&1 >/dev/null) || got=$?
        other=$("$berth" "$@" 2>/dev/null) || true
    fi
    [ "$got" -eq "$code" ] || fail "berth $* exits $got, not $code"
    [ -z "$other" ] || fail "berth $* also says: $other"
    case $said in
    *"$words"*) ;;
    *) fail "berth $* does not say '$words' but: $said" ;;
    esac
}

expect 0 out "berth $version" --version
expect 0 out "Verbs:" help
expect 0 out "Verbs:" --help
expect 0 out "usage: berth help" help help
expect 0 out "the answer is no" help exits
expect 2 err "usage: berth VERB"
expect 2 err "did you mean 'help'?" hlep
expect 2 err "there is no verb 'xyzzyq'" xyzzyq
expect 2 err "did you mean 'exits'?" help exit
expect 2 err "one verb or topic at a time" help help exits

# Every verb that is listed explains itself both ways.
for verb in $("$berth" help | awk '/^Verbs:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'); do
    expect 0 out "usage: berth $verb" help "$verb"
    [ "$verb" = help ] || expect 0 out "usage: berth $verb" "$verb" --help
done

# A result that could not be written is not a success.
if [ -c /dev/full ]; then
    got=0
    "$berth" help >/dev/full 2>/dev/null || got=$?
    [ "$got" -eq 4 ] || fail "a full disk exits $got, not 4"
fi
