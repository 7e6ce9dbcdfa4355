berth plan branches.tflite --reorder --json
