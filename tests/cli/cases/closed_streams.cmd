mkfifo pipe; cat pipe >rows & berth plan small.csv -o pipe >&-; echo $?; wait; cat rows; berth plan small.csv -q -o kept.csv <&- 2>&- >&-; echo $?; wc -l <kept.csv; berth check - <&-; echo $?
