berth plan rank0.csv rank1.csv -q --capacity 96K && berth plan rank0.csv rank1.csv rank2.csv -q --capacity 96K
