for n in 1 2; do
    printf 'time_ns,thread,event,address,bytes,alignment,label,stream,status\n' > log.csv
    for i in $(seq $n); do printf '%d,1,free,%d,100,64,x,0,OK\n' "$i" "$((i * 4096))"; done >> log.csv
    printf '9,1,allocate,65536,100,64,x,0,OK\n' >> log.csv
    berth what-if log.csv --json | grep live_bytes
done
