mkfifo pipe; berth plan small.csv --solver greedy -o pipe >/dev/null & head -n 2 pipe; wait; test -p pipe && echo still a pipe
