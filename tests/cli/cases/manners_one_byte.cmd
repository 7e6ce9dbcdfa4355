printf "id,lower,upper,size\na,0,1,4\nb,0,1,5\n" >one.csv
berth plan one.csv --capacity 8 --quiet; berth plan one.csv -o placed.csv --quiet && berth check placed.csv --capacity 8
