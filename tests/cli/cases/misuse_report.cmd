berth run --limit 1G --report '/tmp/a;b' -- ls
