berth explain-oom pinned.csv --limit 10000
