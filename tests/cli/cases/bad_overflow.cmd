berth plan overflow.csv
