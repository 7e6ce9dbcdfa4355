berth help top
