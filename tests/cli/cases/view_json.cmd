berth view small.csv --json
