berth plan small.csv --solver greedy -o no/such/place.csv
