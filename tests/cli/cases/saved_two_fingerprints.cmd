{ cat saved.csv; tail -n 1 saved.csv; } | berth plan -
