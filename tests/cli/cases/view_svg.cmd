berth view - --svg <small.csv
