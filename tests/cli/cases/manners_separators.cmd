tr ',' ';' <small.csv >semicolons.csv
tr ',' '\t' <small.csv >tabs.csv
for file in semicolons.csv tabs.csv; do berth plan $file -q -o - && berth plan $file -q -o out.csv && berth check $file out.csv && berth convert out.csv | head -2; done
printf 'id;lower;upper;size;label\na;0;1;4;"x, y; z"\nb;0;1;4;x, y\n' | berth plan -q -o - | berth convert
