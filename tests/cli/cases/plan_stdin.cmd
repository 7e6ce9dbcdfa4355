berth plan - --solver greedy --json < equal.csv
