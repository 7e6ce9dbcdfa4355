berth check small.csv hard_overlap.csv
