berth diff labels_after.csv labels_before.csv --fail-above 0
