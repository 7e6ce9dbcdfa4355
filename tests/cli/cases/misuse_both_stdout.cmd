berth plan small.csv --json -o -
