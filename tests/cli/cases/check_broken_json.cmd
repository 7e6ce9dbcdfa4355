berth check hard_overlap.csv --json
