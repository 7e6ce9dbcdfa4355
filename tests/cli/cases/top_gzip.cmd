printf '\037\213\010' > x.gz; berth top x.gz
