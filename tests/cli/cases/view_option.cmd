berth view small.csv --aling 16
