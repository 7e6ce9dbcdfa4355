berth plan small.csv --without wold,repair; berth plan small.csv --without weld,nothing
