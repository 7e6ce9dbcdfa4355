berth show empty.csv
