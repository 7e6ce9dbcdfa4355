berth diff rmm.csv rmm.csv --fail-above much
