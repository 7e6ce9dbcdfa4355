berth what-if small.csv --limit 30K
