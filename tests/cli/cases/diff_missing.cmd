berth diff nowhere.trace rmm.csv
