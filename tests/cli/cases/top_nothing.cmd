berth top
