berth plan small.csv --solver greedy --capacity 20000 -o planned.csv --json >/dev/null; echo $?; wc -l < planned.csv
