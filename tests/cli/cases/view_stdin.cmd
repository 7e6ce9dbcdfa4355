printf "\037\213x" | berth view 2>&1 | sed "s/ Traces.*//"
