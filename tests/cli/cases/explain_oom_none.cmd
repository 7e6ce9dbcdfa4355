berth explain-oom small.csv; echo $?; berth explain-oom small.csv --limit 1M
