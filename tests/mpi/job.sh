#!/bin/sh
# job.sh HOW MPIRUN-ARGUMENT...: runs a job of ranks, ends it after a bounded time, and looks for what it leaves behind: files in
# /dev/shm, the session's folder, processes. HOW 0: it must succeed; killed: it must fail, within ten seconds of its ranks' being there.
set -u
command -v mpirun >/dev/null || { echo "mpirun (openmpi-bin) is not installed"; exit 77; }
how=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TMPDIR=$work
# what this job's processes have in their environment, to be found by
BERTH_MPI_TEST=$work
# Open MPI is not built with sanitizers, and keeps memory until the process ends.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=${BERTH_MPI_LEAKS:-0}
export TMPDIR BERTH_MPI_TEST ASAN_OPTIONS

in_shared_memory() { find /dev/shm -newer "$work/began" ! -type d 2>/dev/null | while read -r file; do
    # of this job alone: other jobs of the machine go on meanwhile
    grep -qF "$file" "$work/files" 2>/dev/null && echo "$file"; done; }
processes() { grep -lzxF "BERTH_MPI_TEST=$work" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | while read -r pid; do
    [ "$pid" = $$ ] || { state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
        name=$(cat "/proc/$pid/comm" 2>/dev/null)
        case $state:$name in Z:* | :*) ;; *:mpirun | *:mpi_* | *:orted | *:mpi) echo "$pid $name" ;; esac; }; done; }
# The shared memory that the job's processes have mapped, while they run.
note_files() { for pid in $(processes | cut -d' ' -f1); do
    sed -n 's|.* \(/dev/shm/[^ ]*\).*|\1|p' "/proc/$pid/maps" 2>/dev/null; done | sort -u >>"$work/files"; }

: >"$work/began"
: >"$work/files"
timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe "$@" >"$work/out" 2>"$work/err" &
job=$!
seen=
while kill -0 "$job" 2>/dev/null; do
    note_files
    [ -n "$seen" ] || [ "$(grep -c 'is there' "$work/out")" -lt 2 ] || seen=$(date +%s)
    sleep 0.05
done
wait "$job"
code=$?
cat "$work/out" "$work/err"
fail() { echo "job.sh: $*" >&2; exit 1; }
left=$(processes)
[ -z "$left" ] || fail "processes are left: $left"
echo "job.sh: ended with $code; $(sort -u "$work/files" | wc -l) files of shared memory were mapped"
left=$(in_shared_memory)
[ -z "$left" ] || fail "shared memory is left: $left"
left=$(find "$work" -mindepth 2 ! -type d | head -5)
[ -z "$left" ] || fail "files are left in the session's folder: $left"
case $how in
0) [ "$code" -eq 0 ] || fail "it ended with $code" ;;
killed)
    [ -n "$seen" ] || fail "its ranks were never there"
    { [ "$code" -ne 0 ] && [ "$code" -ne 124 ]; } || fail "it ended with $code, not as a job whose rank was killed"
    [ $(($(date +%s) - seen)) -le 10 ] || fail "it took more than ten seconds to end" ;;
esac
