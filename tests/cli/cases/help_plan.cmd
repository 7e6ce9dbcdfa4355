berth plan --help
