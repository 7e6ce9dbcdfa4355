# The limit is not in the log, and a hole would do.
printf 'time_ns,thread,event,address,bytes,alignment,label,stream,status\n1,0,allocate,0x10000,1000,64,a,,OK\n2,0,allocate,0x11000,1000,64,b,,OK\n3,0,allocate,0x12000,1000,64,a,,OK\n4,0,free,0x11000,1000,64,,,OK\n5,0,allocate,0x0,500,64,c,,OUT_OF_DEVICE_MEMORY\n' > log.csv
berth explain-oom log.csv | sed -n '1,/^Who/p'
