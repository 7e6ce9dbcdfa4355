berth plan small.csv --solver first-fit-size -o planned.csv --json >/dev/null && cat planned.csv && berth check small.csv planned.csv
