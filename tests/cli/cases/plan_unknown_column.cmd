berth plan unknown.csv --solver greedy -o - 2>err; grep 'not known' err
