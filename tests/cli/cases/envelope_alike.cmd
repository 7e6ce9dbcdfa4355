berth plan rank1.csv rank1.csv | sed -n '/^  of /,/^No input/p'
