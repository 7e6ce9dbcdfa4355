berth what-if small.csv --scale nobody=0.5; berth what-if small.csv --scale conv1
