berth plan small.csv --capacity 5X
