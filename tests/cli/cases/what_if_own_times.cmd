# Times are the file's, wherever they begin.
printf 'id,lower,upper,size\na,100,105,10\nb,102,107,20\nc,103,105,64\n' > later.csv
printf 'id,lower,upper,size\na,-100,-95,10\nb,-98,-93,20\nc,-97,-95,64\n' > below.csv
for file in later.csv below.csv; do
    berth plan $file | grep moment
    berth what-if $file | head -n 1
    berth explain-oom $file --limit 40 | head -n 1
    berth explain-oom $file --limit 40 --json | grep time_ns
    berth view --json $file -o - | grep -o '"first":"[^"]*","last":[0-9]*'
done
# and what is rounded to powers of two is never less
printf 'id,lower,upper,size\na,0,5,9223372036854775807\n' > all.csv
berth what-if all.csv 2>&1 | grep 'to powers'
