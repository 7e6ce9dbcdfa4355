berth convert rmm.csv --to chrome
