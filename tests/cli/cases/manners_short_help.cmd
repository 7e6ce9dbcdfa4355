for verb in plan check show convert devices help; do berth $verb -h | head -1 | cut -d' ' -f1-3; done
