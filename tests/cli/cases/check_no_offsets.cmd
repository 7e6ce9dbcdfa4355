berth check hard.csv equal.csv
