berth show small.csv --color red
