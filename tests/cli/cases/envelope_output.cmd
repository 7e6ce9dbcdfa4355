berth plan rank0.csv rank1.csv rank2.csv -q -o all.csv && berth check all.csv && berth plan all.csv rank0.csv -q -o -
