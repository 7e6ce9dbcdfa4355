berth diff -q labels_before.csv labels_after.csv --fail-above 3.2%
