berth plan empty.csv
