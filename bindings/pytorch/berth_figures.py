"""What a run costs on four CPU allocators: PyTorch's own, tcmalloc, Berth's pool, and a plan of Berth's.

    berth_figures.main(make_run, "name")    # make_run() gives a function that runs the model once and keeps nothing
    berth_figures.main(make_run, "name", plans_itself=True)    # make_run(berth_torch.planned) gives one that plans by itself

Each allocator has a process of its own, which is the same program with the allocator's name as one more argument, and
their runs take turns. See examples/pytorch and bench/pytorch.
"""
import contextlib
import ctypes
import ctypes.util
import os
import resource
import subprocess
import sys
import time

import torch

PEERS = ("default", "tcmalloc", "pool", "plan")
# One thread's processor time is what it takes on a machine that does nothing else, whatever else this one does.
clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def resident(field):  # in bytes; VmHWM is the most since clear_refs was written
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(field))


def prepare(berth, make_run, plans_itself):
    """A run from a plan, the scope around it, and the plan's size with its lower bound."""
    if not plans_itself:
        run = make_run()
        run(), run()
        with berth.record() as plan:
            run()
        return run, berth.replay(plan), f"{plan.peak_bytes} {plan.lower_bound_bytes}"
    made = []

    def planned(function):
        made.append(berth.planned(function))
        return made[-1]

    run = make_run(planned)
    for _ in range(4):
        run()
    plans = [plan for each in made for plan in each.plans()]
    return run, contextlib.nullcontext(), f"{max(p.peak_bytes for p in plans)} {max(p.lower_bound_bytes for p in plans)}"


def work(peer, make_run, plans_itself=False):
    """Says what a run needs of memory; then, for every line that comes in, what one more run costs."""
    berth = __import__("berth_torch") if peer in ("pool", "plan") else None
    if peer == "plan":
        run, scope, planned = prepare(berth, make_run, plans_itself)
    else:
        run, scope, planned = make_run(), contextlib.nullcontext(), ""
        run(), run()
    berth.trim() if berth else ctypes.CDLL(None).malloc_trim(0) if peer == "default" else None
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    for _ in range(3):
        with scope:
            run()
    print(resident("VmHWM") - before, planned, flush=True)
    for _ in sys.stdin:
        faults, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, clock()
        with scope:
            run()
        print(clock() - began, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, flush=True)


def compare(command, repeats=30):
    """{peer: (best seconds, noise, faults, peak bytes[, planned bytes, lower bound])}; noise: the median beyond the best."""
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
    started = {peer: subprocess.Popen([*command, peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, **({"LD_PRELOAD": tcmalloc} if peer == "tcmalloc" else {})})
               for peer in PEERS if peer != "tcmalloc" or tcmalloc}
    sizes = {peer: [int(word) for word in process.stdout.readline().split()] for peer, process in started.items()}
    runs = {peer: [] for peer in started}
    for _ in range(repeats):
        for peer, process in started.items():
            print(file=process.stdin, flush=True)
            runs[peer].append([float(word) for word in process.stdout.readline().split()])
    for process in started.values():
        process.communicate()
    times = {peer: sorted(seconds for seconds, _ in runs[peer]) for peer in started}
    return {peer: (times[peer][0], times[peer][repeats // 2] / times[peer][0] - 1,
                   sorted(faults for _, faults in runs[peer])[repeats // 2], *sizes[peer]) for peer in started}


def show(name, figures):
    print(f"{name:20}{'best ms':>9}{'÷ default':>11}{'noise':>7}{'faults':>8}{'peak MiB':>10}{'planned':>9}{'bound':>9}")
    for peer, (seconds, noise, faults, *sizes) in figures.items():
        mib = "".join(f"{size / 2**20:{width}.2f}" for size, width in zip(sizes, (10, 9, 9)))
        if peer == "tcmalloc":  # keeps what it once had, so that its peak cannot be told from outside
            mib = f"{'-':>10}"
        print(f"  {peer:18}{seconds * 1e3:9.2f}{seconds / figures['default'][0]:11.3f}{noise:7.0%}{faults:8.0f}{mib}")


def main(make_run, name, plans_itself=False):
    """Prints the table for a program whose arguments choose the run."""
    repeats = int(os.environ.get("BERTH_FIGURES_REPEATS", "30"))
    if sys.argv[-1] in PEERS:
        work(sys.argv[-1], make_run, plans_itself)
    else:
        show(name, compare([sys.executable, *sys.argv], repeats))
