# Labels come from files: an escape, a control character of the second kind, bytes that are no UTF-8, half a surrogate, a new line, one that is cut.
long=$(printf '\346\274\242%.0s' $(seq 80))
log() {
    printf 'time_ns,thread,event,address,bytes,alignment,label,stream,status\n'
    at=0
    for label in 'plain' 'red\033[31m' 'c1\302\23331m' '\377\376bad' '\355\240\200half' 'two\nlines' "$long" 'end\346\274'; do
        at=$((at + 1))
        printf "%d,1,allocate,%d,%d,64,\"$label\",0,OK\n" "$at" "$((at * 65536))" "$((at * $1))"
    done
}
log 1000 > a.csv
log 1100 > b.csv
berth top a.csv | tail -n +5
berth explain-oom a.csv --limit 30000 | sed -n '2,/^Bounds/p'
berth what-if b.csv --json | grep '"of"'
berth diff a.csv b.csv
berth diff a.csv b.csv --json | grep '"name"'
berth top a.csv --json | grep '"name"'
berth plan a.csv | grep '^  [A-H] '
odd=$(printf 'odd\377.csv')
cp a.csv "$odd"
berth top "$odd" --json | grep '"input"'
berth what-if "$odd" --json | grep '"input"'
