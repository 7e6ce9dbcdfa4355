berth diff labels_before.csv rmm.csv
