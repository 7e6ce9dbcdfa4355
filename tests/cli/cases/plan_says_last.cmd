berth plan small.csv --capacity 1 2>&1 | tail -n 1
