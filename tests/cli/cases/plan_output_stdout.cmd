berth plan hard.csv --solver first-fit-size -o - 2>/dev/null
