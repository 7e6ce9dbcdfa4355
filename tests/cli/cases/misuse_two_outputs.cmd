berth convert small.csv a.csv -o b.csv
