berth view small.csv -o /proc/self/comm 2>&1 | cut -d: -f 1-4; berth convert small.csv --to chrome -o /proc/self/comm 2>&1 | cut -d: -f 1-4; berth view small.csv -o . ; echo $?
