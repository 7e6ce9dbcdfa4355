berth plan not_there.csv
