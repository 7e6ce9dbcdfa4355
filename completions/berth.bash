# Completion of the berth command for bash. Verbs and solvers are asked of the command itself.
_berth() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] || { verb=${COMP_WORDS[i]}; break; }
    done
    if [[ -z $verb ]]; then
        local verbs
        verbs=$("${COMP_WORDS[0]}" help 2>/dev/null | awk '/^Verbs:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
        mapfile -t COMPREPLY < <(compgen -W "$verbs --help --version" -- "$cur")
        return
    fi
    case $prev in
    --solver)
        mapfile -t COMPREPLY < <(compgen -W "auto greedy first-fit-size first-fit-area first-fit-breadth \
best-fit-size best-fit-area best-fit-breadth" -- "$cur")
        return ;;
    --effort) mapfile -t COMPREPLY < <(compgen -W "fast default max" -- "$cur"); return ;;
    --color) mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$cur"); return ;;
    --runtime) mapfile -t COMPREPLY < <(compgen -W "micro tflite ort" -- "$cur"); return ;;
    --allocator | -a) mapfile -t COMPREPLY < <(compgen -W "glibc berth mimalloc jemalloc tcmalloc" -f -- "$cur"); return ;;
    --to) mapfile -t COMPREPLY < <(compgen -W "csv trace chrome snapshot" -- "$cur"); return ;;
    --scratch | --write | --output | --report | -o) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null; return ;;
    --stacks | --min-bytes | --interval | --limit | --settings | --failure | --scale | --dim | --capacity | --align | --detail | --seed | --steps | --budget | --without | --device | --fail-above | --top | --runs | --width | --height) return ;;
    esac
    if [[ $cur == -* ]]; then
        local options
        # every option that the verb's help names at the beginning of a line, or after a comma there
        options=$("${COMP_WORDS[0]}" help "$verb" 2>/dev/null | grep -E '^ +-' | grep -oE -- '--[a-z-]+' | sort -u)
        mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$cur")
    elif [[ $verb == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" help 2>/dev/null | awk '/^  / { print $1 }')" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        compopt -o filenames 2>/dev/null
    fi
}
complete -F _berth berth
