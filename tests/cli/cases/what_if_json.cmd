berth what-if small.csv --limit 22K --json
