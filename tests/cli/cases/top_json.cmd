berth top everything.csv --json
