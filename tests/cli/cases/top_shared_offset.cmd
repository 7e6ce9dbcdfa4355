printf 'id,lower,upper,size,alias,offset\na,0,10,1000,g,500\nb,2,12,1000,g,500\nc,0,12,500,,0\n' > alias.csv
printf 'id,lower,upper,size,gaps,offset\na,0,10,1000,3-6,0\nb,3,6,1000,,0\n' > gaps.csv
berth top alias.csv; berth top gaps.csv; berth what-if alias.csv --json | grep -E '(live|bound)_bytes'; cut -d, -f1-5 alias.csv > unplanned.csv; berth diff unplanned.csv alias.csv
