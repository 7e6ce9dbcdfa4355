# Completion of the berth command for fish. Verbs and options are asked of the command itself.
function __berth_verbs
    berth help 2>/dev/null | awk '/^Verbs:/ { on = 1; next } /^$/ { on = 0 } on { name = $1; sub(/^ *[^ ]+ +/, ""); print name "\t" $0 }'
end
function __berth_topics
    berth help 2>/dev/null | awk '/^  / { name = $1; sub(/^ *[^ ]+ +/, ""); print name "\t" $0 }'
end
function __berth_options
    set -l words (commandline -opc)
    test (count $words) -ge 2; and berth help $words[2] 2>/dev/null | string match -r '^ +-.*' | string match -ra -- '--[a-z-]+' | sort -u
end
complete -c berth -n __fish_use_subcommand -f -a '(__berth_verbs)'
complete -c berth -n __fish_use_subcommand -f -a '--help --version'
complete -c berth -n '__fish_seen_subcommand_from help' -f -a '(__berth_topics)'
complete -c berth -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__berth_options)'
