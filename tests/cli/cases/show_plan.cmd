berth plan equal.csv --solver greedy -o - 2>/dev/null | berth show - --ascii --width 40 --height 8
