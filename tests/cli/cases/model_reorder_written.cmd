berth plan branches.tflite --reorder --write out.tflite >/dev/null && berth check out.tflite && berth convert out.tflite
