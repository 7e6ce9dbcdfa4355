grep -v fingerprint saved.csv | cut -d, -f1-4 > problem.csv && berth check problem.csv saved.csv && berth plan problem.csv -o planned.csv >/dev/null && berth check saved.csv planned.csv
