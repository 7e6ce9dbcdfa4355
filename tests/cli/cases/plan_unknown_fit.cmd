berth plan hard.csv --solver greedy --capacity 12 --json
