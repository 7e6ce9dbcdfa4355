berth what-if everything.csv --limit 1M
