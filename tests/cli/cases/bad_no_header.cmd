printf 'a,0,3,4\nb,3,9,4\n' | berth plan
