berth convert rmm.csv a.trace && berth convert a.trace -o b.csv && cat b.csv
