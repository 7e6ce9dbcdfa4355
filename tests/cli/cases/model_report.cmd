berth plan branches.tflite --height 12
