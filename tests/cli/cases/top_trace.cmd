berth convert rmm.csv rmm.trace && berth top rmm.trace --once
