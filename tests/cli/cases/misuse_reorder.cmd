berth plan small.csv --reorder
