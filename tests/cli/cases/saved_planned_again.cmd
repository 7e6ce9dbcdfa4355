berth plan saved.csv --solver greedy -o again.csv >/dev/null && cat again.csv && berth check saved.csv again.csv
