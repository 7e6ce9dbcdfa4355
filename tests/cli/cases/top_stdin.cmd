berth top - < rmm.csv
