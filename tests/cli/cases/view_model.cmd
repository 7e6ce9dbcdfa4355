berth view --json branches.tflite | head -n 8 | cut -c 1-160
