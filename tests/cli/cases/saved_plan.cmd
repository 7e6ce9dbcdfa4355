berth plan saved.csv --json | grep buffers && berth check saved.csv && berth check saved.csv saved.csv --json && berth show saved.csv --height 8
