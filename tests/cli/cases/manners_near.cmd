berth plan small.csv --jsn; berth plam; berth xyz; berth plan small.csv --frobnicate
