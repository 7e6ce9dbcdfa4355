berth check - - <small.csv
