#!/bin/sh
# check_registry.sh STATIC SHARED: both say the same of the registry, with and without BERTH_CONF, and it has the pool.
set -eu
for conf in '' 'limit=1M' 'stats=full' 'guard=yes'; do
    if [ -n "$conf" ]; then export BERTH_CONF="$conf"; else unset BERTH_CONF; fi
    from_static=$("$1") from_shared=$("$2")
    [ "$from_static" = "$from_shared" ] || {
        printf 'BERTH_CONF=%s: linked statically\n%s\nand shared\n%s\n' "$conf" "$from_static" "$from_shared" >&2
        exit 1
    }
    case $from_static in *pool*system*) ;; *) echo "the registry lacks something: $from_static" >&2; exit 1 ;; esac
    case $from_static in *"for the host: system"*) echo "BERTH_CONF=$conf replaces the pool" >&2; exit 1 ;; esac
done
