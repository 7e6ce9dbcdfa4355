berth plan twice.csv
