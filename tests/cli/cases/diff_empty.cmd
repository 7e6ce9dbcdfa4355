berth diff nothing.csv labels_after.csv
