berth explain-oom small.csv --limit 30K
