berth show small.csv --width 50 --height 12
