berth plan nothing.csv
