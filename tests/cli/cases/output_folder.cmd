berth plan small.csv -o . ; echo $?; berth plan small.csv -o no/such/place.csv; echo $?; berth plan small.csv -o ''; echo $?; berth convert small.csv small.csv/x; echo $?
