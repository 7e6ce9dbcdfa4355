# An empty name is no file, and what is neither piped nor named is missing, for every verb alike.
for verb in plan check show convert view top explain-oom what-if bench-allocators; do
    berth $verb '' || echo "exit $?"
    berth $verb </dev/null || echo "exit $?"
done
