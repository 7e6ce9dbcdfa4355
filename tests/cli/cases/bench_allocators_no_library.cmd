berth bench-allocators rmm.csv -a /nowhere/libfast.so
