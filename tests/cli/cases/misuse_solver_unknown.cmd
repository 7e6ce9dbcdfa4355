berth plan small.csv --solver xyz 2>&1 | cut -c1-58
