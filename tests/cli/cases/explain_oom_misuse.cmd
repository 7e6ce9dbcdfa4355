berth explain-oom small.csv --failure 0
