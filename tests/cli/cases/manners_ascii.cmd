berth plan small.csv --ascii --height 6 | LC_ALL=C grep -c "[^ -~]"
