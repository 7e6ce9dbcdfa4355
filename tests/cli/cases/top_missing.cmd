berth top nothing.trace
