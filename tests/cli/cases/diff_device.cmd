berth diff rmm.csv rmm.csv --device cuda:9
