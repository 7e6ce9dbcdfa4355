berth plan small.csv --capacty 5
