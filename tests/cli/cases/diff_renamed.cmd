berth diff renamed_before.csv renamed_after.csv; berth diff renamed_before.csv renamed_after.csv --json | grep -B1 was_called
