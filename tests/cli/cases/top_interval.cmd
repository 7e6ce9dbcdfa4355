berth top rmm.csv --interval 99999
