sed "s/,4096,,,,0,/,4096,,,,64,/" everything.csv > pinned.csv; berth plan pinned.csv --align 48
