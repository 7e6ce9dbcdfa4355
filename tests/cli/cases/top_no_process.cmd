berth top 999999999
