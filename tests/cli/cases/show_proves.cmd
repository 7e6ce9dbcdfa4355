berth show hard_overlap.csv
