berth plan equal.csv --solver greedy --color always --width 40 --height 8
