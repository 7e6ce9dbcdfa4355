berth help what-if
