berth plan - rank0.csv - </dev/null; berth plan branches.tflite branches.tflite --reorder; berth plan rank0.csv nowhere.csv
