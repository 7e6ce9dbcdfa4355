mkfifo pipe; cat rank1.csv >pipe & timeout 20 berth plan pipe rank1.csv -q; echo $?
