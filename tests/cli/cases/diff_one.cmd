berth diff rmm.csv
