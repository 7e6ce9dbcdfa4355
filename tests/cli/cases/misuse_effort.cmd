berth plan small.csv --effort high
