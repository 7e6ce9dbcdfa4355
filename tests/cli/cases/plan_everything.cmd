berth plan everything.csv --solver first-fit-size -o planned.csv >/dev/null && cat planned.csv && berth check everything.csv planned.csv
