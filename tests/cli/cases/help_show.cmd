berth show --help
