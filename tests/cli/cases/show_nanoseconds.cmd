printf 'id,lower,upper,size\na,1763500000000000000,1763500000000000050,5\nb,1763500000000000050,1763500000000000100,5\n' | berth show - -o - | sed -n 's/.* \(x=.*\) height.*title.\([ab]\).*/\2 \1/p'
