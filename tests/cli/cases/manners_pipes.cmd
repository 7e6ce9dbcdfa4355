# What comes once can be named: the shell's <(...) is /dev/fd/63, and there are pipes with names.
cat before.heaptrack | berth diff /dev/fd/0 after.heaptrack -q --fail-above 5; echo $?
cat before.heaptrack | berth top /dev/fd/0 | head -n 3
cat before.heaptrack | berth top | head -n 3
cat before.heaptrack | berth what-if /dev/fd/0 --json | grep live_bytes
cat before.heaptrack | berth plan /dev/fd/0 --json | grep '"buffers"'
cat before.heaptrack | berth convert /dev/fd/0 | head -n 2
cat small.csv | berth view /dev/fd/0 --json | head -c 20; echo
cat small.csv | berth view /dev/fd/0 | head -c 15; echo
mkfifo named
for verb in top 'view --json' 'what-if --json'; do
    { cat before.heaptrack > named; echo "written: $?" >&2; } &
    berth $verb named > out; echo "$verb: $?"; wait
done
{ cat small.csv > named; echo "written: $?" >&2; } & berth plan named --json | grep '"buffers"'; wait
head -c 40 before.heaptrack | tr v w | berth top /dev/fd/0
