berth plan - small.csv --json <small.csv | grep -E '"(input|driver|without|sizes_differ)"'
