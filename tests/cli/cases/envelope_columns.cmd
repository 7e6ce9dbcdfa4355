berth plan everything.csv everything.csv -q -o - && sed 's/5-9 12-15/5-9/' everything.csv > gaps.csv && berth plan everything.csv gaps.csv
