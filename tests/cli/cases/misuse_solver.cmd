berth plan small.csv --solver gredy
