berth diff labels_before.csv labels_after.csv
