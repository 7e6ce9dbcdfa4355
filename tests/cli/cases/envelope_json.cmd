berth plan rank0.csv rank1.csv rank0.csv --json
