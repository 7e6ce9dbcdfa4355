berth convert rmm.csv
