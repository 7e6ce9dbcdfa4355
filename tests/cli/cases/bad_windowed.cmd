berth plan windowed.csv
