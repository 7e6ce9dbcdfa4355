berth diff labels_before.csv - --top 1 <labels_after.csv
