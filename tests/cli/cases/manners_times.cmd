berth plan small.csv -q --budget 500ms && berth plan small.csv -q --budget 2s && berth plan small.csv -q --budget 1.5min && berth plan small.csv -q --budget 0.5
berth plan small.csv --budget 5h
