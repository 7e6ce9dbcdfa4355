berth plan small.csv --solver greedy --json
