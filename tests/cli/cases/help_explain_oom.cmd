berth help explain-oom
