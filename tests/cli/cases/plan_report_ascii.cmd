LC_ALL=C berth plan small.csv --solver best-fit-size --width 60 --height 14
