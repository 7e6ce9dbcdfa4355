berth plan branches.tflite --reorder --height 12
