berth plan no_upper.csv
