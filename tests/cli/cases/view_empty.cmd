berth view empty.csv
