for other in rank_short.csv rank_other.csv rank_frees.csv hard.csv; do berth plan rank0.csv $other; echo "exit $?"; done; berth plan rank_short.csv rank0.csv
