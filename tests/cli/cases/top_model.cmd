berth top branches.tflite
berth top branches.tflite --json | head -n 5
for verb in plan show top view what-if; do cat branches.tflite | berth $verb; echo "$verb: $?"; done
