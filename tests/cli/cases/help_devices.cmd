berth help devices
