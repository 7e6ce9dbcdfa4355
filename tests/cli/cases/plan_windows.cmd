berth plan windows.csv --solver first-fit-size -o - 2>/dev/null | od -c | head -20
