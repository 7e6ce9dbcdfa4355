berth plan small.csv --seed
