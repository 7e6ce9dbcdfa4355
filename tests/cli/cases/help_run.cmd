berth run --help
