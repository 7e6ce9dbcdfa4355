berth view small.csv -q -o page.html && grep -c "application/json" page.html
