berth convert rmm.csv cut.trace
head -c 100 cut.trace > short.trace
berth view short.trace
