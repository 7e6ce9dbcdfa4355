berth plan hard_overlap.csv --solver greedy --json >/dev/null
