berth view missing.trace
