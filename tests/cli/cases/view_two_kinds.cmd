berth view small.csv --svg --json
