berth plan hard.csv --capacity 1M --json | grep -E "fits|stopped_by"; berth plan equal.csv --capacity 1M --minimise --json | grep -E "fits|stopped_by|proven"
