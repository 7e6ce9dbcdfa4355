"""What a run costs on four CPU allocators: PyTorch's own, tcmalloc, Berth's pool, and a plan of Berth's.

    berth_figures.main(make_run, "name")    # make_run() gives a function that runs the model once and keeps nothing
    berth_figures.main(make_run, "name", plans_itself=True)    # make_run(berth_torch.planned) gives one that plans by itself

Turns follow one another in rounds, and what is compared are the turns of one round: whatever else the machine does in it
slows all of them. The median of these ratios is the answer. PyTorch's own, the pool and the plan take turns in one process, so
that code, weights and all else lie at the same places for all: between processes that makes some percent. Memory and page
faults are those of a process for each allocator, and so is tcmalloc's time, which is compared with those. A process is
this program with one more argument. See examples/pytorch and bench/pytorch.
"""
import contextlib
import ctypes
import ctypes.util
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import torch

PEERS = ("default", "tcmalloc", "pool", "plan")
TOGETHER, IN_TURN = "together", ("default", "pool", "plan")
TURN_SECONDS = 0.03
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


def quickest(scope, run):
    """Seconds of a run, as far as can be told before the turns."""
    best = None
    for _ in range(3):
        began = clock()
        with scope:
            run()
        best = min(best or 1e9, clock() - began)
    return best


def work_together(make_run, plans_itself):
    """Takes turns as what comes in says, "peer runs": what one of so many runs took."""
    import berth_torch
    peer = "pool"

    def planned_in_turn(function):
        made = berth_torch.planned(function)
        return lambda *words: (made if peer == "plan" else function)(*words)

    run = make_run(planned_in_turn) if plans_itself else make_run()
    run(), run()
    with contextlib.nullcontext() if plans_itself else berth_torch.record() as plan:
        run()
    replay = contextlib.nullcontext() if plans_itself else berth_torch.replay(plan)
    for line in sys.stdin:
        peer, runs = line.split()
        (berth_torch.disable if peer == "default" else berth_torch.enable)()
        scope = replay if peer == "plan" else contextlib.nullcontext()
        for _ in range(3 if plans_itself else 1):  # after the others'; and what plans itself records its plans in its first turn
            with scope:
                run()
        began = clock()
        for _ in range(int(runs)):
            with scope:
                run()
        print((clock() - began) / int(runs), flush=True)


def work(peer, make_run, plans_itself=False):
    """Says what a run takes and needs of memory; then, for every number that comes in, what one of so many runs costs."""
    if peer == TOGETHER:
        return work_together(make_run, plans_itself)
    berth = __import__("berth_torch") if peer in ("pool", "plan") else None
    if peer == "plan":
        run, scope, planned = prepare(berth, make_run, plans_itself)
    else:
        run, scope, planned = make_run(), contextlib.nullcontext(), ""
        run(), run()
    berth.trim() if berth else ctypes.CDLL(None).malloc_trim(0) if peer == "default" else None
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    seconds = quickest(scope, run)
    print(seconds, resident("VmHWM") - before, planned, flush=True)
    for line in sys.stdin:
        runs = int(line)
        faults, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, clock()
        for _ in range(runs):
            with scope:
                run()
        seconds = clock() - began
        print(seconds / runs, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / runs, flush=True)


class Figure(NamedTuple):
    """What a run costs on one allocator."""

    seconds: float      # the median
    to_default: float   # the median of the ratios to the default's turn in the same round
    to_pool: float      # and to the pool's
    spread: float       # half of the ratios to the default lie within so much
    faults: float
    peak_bytes: int
    planned_bytes: int = 0
    bound_bytes: int = 0


def ratios(ours, theirs):
    """The ratios of turns of the same rounds: their median, and how far the quartiles lie apart."""
    each = sorted(mine / other for mine, other in zip(ours, theirs))
    return statistics.median(each), each[len(each) * 3 // 4] - each[len(each) // 4]


def compare(command, repeats=30):
    """{peer: Figure} of so many rounds."""
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
    # Who waits for its turn for ten seconds is not idle.
    settings = {**os.environ, "BERTH_TORCH": ",".join(filter(None, (os.environ.get("BERTH_TORCH"), "keep_idle=1")))}
    started = {peer: subprocess.Popen([*command, peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**settings, **({"LD_PRELOAD": tcmalloc} if peer == "tcmalloc" else {})})
               for peer in PEERS if peer != "tcmalloc" or tcmalloc}
    together = subprocess.Popen([*command, TOGETHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first = {peer: process.stdout.readline().split() for peer, process in started.items()}
    # Turns are long enough that the processor's caches, in which the others had theirs, weigh little; and equally long.
    runs = max(1, int(TURN_SECONDS / min(float(seconds) for seconds, *_ in first.values())))
    order = [*started, *((TOGETHER, peer) for peer in IN_TURN)]
    turns = {each: [] for each in order}
    for round in range(repeats + 1):
        order.append(order.pop(0))  # nobody is always the one after the same other
        for peer in order:
            process, words = (started[peer], [runs]) if peer in started else (together, [peer[1], runs])
            print(*words, file=process.stdin, flush=True)
            turn = [float(word) for word in process.stdout.readline().split()]
            if round:  # the first warms up
                turns[peer].append(turn)
    for process in (together, *started.values()):
        process.communicate()
    times = {peer: [seconds for seconds, *_ in turns[peer]] for peer in turns}
    found = {}
    for peer in started:
        mine, default, pool = (times[(TOGETHER, each) if peer in IN_TURN else each] for each in (peer, "default", "pool"))
        to_default, spread = ratios(mine, default)
        found[peer] = Figure(statistics.median(mine), to_default, ratios(mine, pool)[0], spread,
                             statistics.median(faults for _, faults in turns[peer]), *map(int, first[peer][1:]))
    return found


def enter_and_leave(batches=10, runs=1000):
    """Seconds that one empty replay takes, with a scope that is kept and one that is made each time: the medians of batches."""
    import berth_torch
    with berth_torch.record() as plan:
        torch.ones(9)
    kept = berth_torch.replay(plan)

    def batch(enter):
        began = clock()
        enter()
        return (clock() - began) / runs

    def with_kept():
        for _ in range(runs):
            with kept:
                pass

    def with_made():
        for _ in range(runs):
            with berth_torch.replay(plan):
                pass

    return tuple(statistics.median(batch(enter) for _ in range(batches)) for enter in (with_kept, with_made))


def show(name, figures):
    print(f"{name:20}{'ms':>9}{'÷ default':>11}{'÷ pool':>8}{'spread':>8}{'faults':>8}{'peak MiB':>10}{'planned':>9}{'bound':>9}")
    for peer, f in figures.items():
        sizes = (f.peak_bytes, f.planned_bytes, f.bound_bytes) if peer == "plan" else (f.peak_bytes,)
        mib = "".join(f"{size / 2**20:{width}.2f}" for size, width in zip(sizes, (10, 9, 9)))
        if peer == "tcmalloc":  # keeps what it once had, so that its peak cannot be told from outside
            mib = f"{'-':>10}"
        print(f"  {peer:18}{f.seconds * 1e3:9.2f}{f.to_default:11.3f}{f.to_pool:8.3f}{f.spread:8.3f}{f.faults:8.0f}{mib}")


def main(make_run, name, plans_itself=False):
    """Prints the table for a program whose arguments choose the run."""
    repeats = int(os.environ.get("BERTH_FIGURES_REPEATS", "30"))
    if sys.argv[-1] in (*PEERS, TOGETHER):
        work(sys.argv[-1], make_run, plans_itself)
    else:
        show(name, compare([sys.executable, *sys.argv], repeats))
