berth view --help
