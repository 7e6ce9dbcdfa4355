berth plan before.heaptrack after.heaptrack -o - 2>&1 | grep -v '[│└]'
