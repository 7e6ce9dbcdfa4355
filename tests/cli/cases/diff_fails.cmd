berth diff labels_before.csv labels_after.csv --fail-above 3
