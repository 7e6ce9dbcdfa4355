berth top rmm.csv
