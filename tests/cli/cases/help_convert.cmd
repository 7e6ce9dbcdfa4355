berth convert --help
