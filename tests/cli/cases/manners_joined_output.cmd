berth plan small.csv -ojoined.csv -q && head -2 joined.csv
berth plan small.csv -q --json -o -
