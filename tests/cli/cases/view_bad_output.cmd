berth view small.csv -o /nowhere/page.html
