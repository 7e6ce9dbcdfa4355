berth check small.csv hard.csv equal.csv; berth show small.csv hard.csv
