for verb in $(berth help | sed -n '/^Verbs:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do berth "$verb" -h | head -n 1 | cut -d' ' -f1-3; done
