berth bench-allocators rmm.csv --runs 100
