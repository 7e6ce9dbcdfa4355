berth plan - < bad_number.csv
