berth bench-allocators rmm.csv -a glibc,mimaloc
