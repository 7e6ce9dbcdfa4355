berth plan hard.csv --solver greedy -o planned.csv >/dev/null && berth check hard.csv planned.csv --capacity 4
