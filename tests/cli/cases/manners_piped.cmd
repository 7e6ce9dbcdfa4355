cat small.csv | berth plan --json | grep buffers
berth plan -q <small.csv; echo $?
cat small.csv | berth convert | head -2
cat small.csv | berth show --height 5 --ascii | tail -1
