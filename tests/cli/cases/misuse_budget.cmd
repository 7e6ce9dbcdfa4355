berth plan small.csv --budget -1
