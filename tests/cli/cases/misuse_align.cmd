berth plan everything.csv --align 0
