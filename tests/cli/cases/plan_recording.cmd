berth plan rmm.csv --width 60 --height 8
