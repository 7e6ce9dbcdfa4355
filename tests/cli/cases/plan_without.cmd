berth plan hard.csv --without weld,exact --steps 20000 --json | grep -E "stopped_by|steps"; berth plan hard.csv --without welding
