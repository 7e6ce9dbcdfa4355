berth plan small.csv --quiet --capacity 40K; echo $?
berth plan small.csv -q --capacity 1; echo $?
berth plan small.csv -q -o p.csv && berth check p.csv -q; echo $?
