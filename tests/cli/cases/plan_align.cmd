berth plan hard.csv --solver first-fit-size --align 16 -o planned.csv --json | grep -E "peak|lower_bound|naive|alignment" && cat planned.csv && berth check hard.csv planned.csv --align 16
