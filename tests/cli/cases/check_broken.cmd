berth check hard.csv hard_overlap.csv
