berth diff rmm.csv rmm.csv
