berth what-if small.csv --scale conv1=0.5
