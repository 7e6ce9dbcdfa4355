berth convert saved.csv | cmp - saved.csv && berth convert saved.csv | berth check saved.csv -
