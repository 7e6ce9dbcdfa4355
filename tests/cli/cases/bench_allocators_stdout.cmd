berth bench-allocators rmm.csv -o -
