berth devices cuda
