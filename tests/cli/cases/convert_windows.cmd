berth convert windows.csv
