berth convert rmm.csv --to xml
