# The file is mapped, and somebody empties it between the plan and its rows: the pipe opens when the plan is there.
awk 'BEGIN { print "id,lower,upper,size"; for (i = 0; i < 60000; i++) print i "," i "," i + 2 ",64" }' >rows.csv
mkfifo out
berth plan rows.csv -q -o out 2>said &
exec 3<out
: >rows.csv
cat <&3 >/dev/null
code=0
wait $! || code=$?
cat said
echo "it exits $code"
