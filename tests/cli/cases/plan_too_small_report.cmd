berth plan small.csv --solver greedy --capacity 16K --height 6 --width 40
