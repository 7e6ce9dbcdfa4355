berth plan hard.csv --solver greedy -o hard.csv >/dev/null && berth plan hard.csv --solver first-fit-size -o hard.csv --json >/dev/null && cat hard.csv
