berth plan rank0.csv rank1.csv rank2.csv --width 40 --height 6
