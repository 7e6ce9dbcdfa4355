berth plan small.csv hard.csv
