berth plan small.csv -o /dev/full; echo $?; berth convert small.csv /dev/full; echo $?; berth plan small.csv -o - >/dev/full 2>/dev/null; echo $?; berth plan small.csv >/dev/full; echo $?
