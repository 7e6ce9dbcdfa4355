berth bench-allocators nowhere.trace
