berth plan
