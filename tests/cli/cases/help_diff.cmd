berth diff --help
