berth convert everything.csv out.csv && cat out.csv && berth convert out.csv | cmp - out.csv
