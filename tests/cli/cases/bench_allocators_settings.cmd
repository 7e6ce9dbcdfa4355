berth bench-allocators rmm.csv -a 'berth,limit=much'
