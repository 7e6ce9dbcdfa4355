berth plan hard.csv --solver greedy --explain --height 6 --width 40 | sed "s/  *[0-9.]* [mu]*s / TIME /"
