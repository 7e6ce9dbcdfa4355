name=$(printf '%0251d.csv' 0); berth plan small.csv -o "$name" >/dev/null && wc -l <"$name"; berth plan "$name" -o "$name" >/dev/null 2>&1 && wc -l <"$name"
