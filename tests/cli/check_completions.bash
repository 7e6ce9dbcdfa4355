#!/usr/bin/env bash
# check_completions.bash BERTH ROOT: what bash completes after a verb, what zsh's file lists for it, and what its manual page has are the same options.
# fish asks berth's help as bash does, by the same pattern.
set -u
berth=$1 root=$2 failed=0
# shellcheck source=/dev/null
. "$root/completions/berth.bash"
verbs=$("$berth" help | awk '/^Verbs:/ { on = 1; next } /^$/ { on = 0 } on && $1 != "help" { print $1 }')
[ -n "$verbs" ] || { echo "no verbs"; exit 1; }

same() {
    diff <(printf '%s\n' "$3") <(printf '%s\n' "$4") >/dev/null && return
    echo "$1: the options of $2 are not those of its manual page:"
    diff <(printf '%s\n' "$3") <(printf '%s\n' "$4")
    failed=1
}

for verb in $verbs; do
    # --model stands in an example, as an option of the program that is recorded
    manual=$(sed 's/\\-/-/g' "$root/docs/man/berth-$verb.1" | grep -oE -- '--[a-z][a-z-]+' | grep -vxE -- '--(help|model)' | sort -u)
    COMP_WORDS=("$berth" "$verb" --)
    COMP_CWORD=2
    _berth
    same "$verb" bash "$(printf '%s\n' "${COMPREPLY[@]}" | grep -vx -e --help | sort -u)" "$manual"
    listed=$(awk -v verb="$verb" '$1 == verb ")" { on = 1 } on { print } /;;/ { on = 0 }' "$root/completions/_berth" |
        sed 's/\[[^]]*\]//g' | grep -oE -- '--[a-z][a-z-]+' | grep -vx -e --help | sort -u)
    same "$verb" zsh "$listed" "$manual"
done
exit "$failed"
