printf 'operator,bytes\n3,1.5K\n6,64\n' >scratch.csv
berth plan branches.tflite --reorder --scratch scratch.csv --height 8
printf 'operator,bytes\n3,1.5K\n9,64\n' >scratch.csv
berth plan branches.tflite --scratch scratch.csv
