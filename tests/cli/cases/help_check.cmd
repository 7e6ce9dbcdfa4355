berth help check
