printf 'id,lower,upper,size\nx,0,1,1\n' >byte.csv
berth plan byte.csv -o byte.out | grep peak
berth check byte.out
