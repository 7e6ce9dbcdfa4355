berth plan small.csv --solver greedy --json --capacity 64K --align 4K --seed 7
