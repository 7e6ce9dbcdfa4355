berth convert unknown.csv out.csv && cat out.csv && berth convert out.csv 2>/dev/null | cmp - out.csv
