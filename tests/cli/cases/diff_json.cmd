berth diff before.heaptrack after.heaptrack --json
