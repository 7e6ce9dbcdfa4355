berth bench-allocators --help
