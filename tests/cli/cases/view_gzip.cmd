printf "\037\213x" >a.gz; berth view a.gz 2>&1 | sed "s/ Traces.*//"
