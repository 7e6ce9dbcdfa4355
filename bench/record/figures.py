#!/usr/bin/env python3
"""What recording costs: programs by themselves, under berth record and under heaptrack.

    bench/record/figures.py [--build FOLDER] [--check] [--rounds N] [--pairs N]

All ways run in turn in each round; the table has the median of each. What is measured is the processor time of the program, so that
neither other work on the machine counts, nor what berth does after the program and heaptrack's second process beside it.
--check: exit 1 unless every figure is met.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {"pairs": "one place", "sites": "128 places under 24 callers", "paths": "any order: most stacks are new"}
DEPTHS = (0, 16, 64)  # heaptrack's is 64
ADDED_NS = 100  # a pair, without stacks
TIMES_SMALLER = 5  # than heaptrack's slow-down, without stacks


def ways(build, folder):
    """What stands before the program, by name."""
    found = {"plain": []}
    for depth in DEPTHS:
        found[f"berth --stacks {depth}"] = [os.path.join(build, "berth"), "record", "-q", "--no-symbols", "--stacks", str(depth),
                                            "-o", os.path.join(folder, "berth.trace"), "--"]
    if shutil.which("heaptrack"):
        found["heaptrack"] = ["heaptrack", "-o", os.path.join(folder, "heaptrack")]
    return found


def measure(words):
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([0-9.]+) ns a pair", said).group(1))


def judge(program, ns):
    """The figures' promises: a list of (what, holds)."""
    slower = {name: value / ns["plain"] for name, value in ns.items()}
    found = []
    added = ns["berth --stacks 0"] - ns["plain"]
    if program == "pairs":
        found.append((f"without stacks {added:.0f} ns more a pair, at most {ADDED_NS}", added <= ADDED_NS))
    if "heaptrack" in ns:
        times = slower["heaptrack"] / slower["berth --stacks 0"]
        found.append((f"without stacks {times:.1f} times less slow than heaptrack, at least {TIMES_SMALLER}", times >= TIMES_SMALLER))
        times = slower["heaptrack"] / slower["berth --stacks 64"]
        found.append((f"with stacks as deep {times:.1f} times less slow, at least 1", times >= 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build-bench"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=200000)
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        before = ways(os.path.abspath(arguments.build), folder)
        if "heaptrack" not in before:
            print("heaptrack is not installed: nothing to compare with", file=sys.stderr)
        for program, what in PROGRAMS.items():
            words = [os.path.join(os.path.abspath(arguments.build), "bench", "record_figures"), program, str(arguments.pairs)]
            rounds = [{name: measure(first + words) for name, first in before.items()} for _ in range(arguments.rounds)]
            ns = {name: statistics.median(one[name] for one in rounds) for name in before}
            print(f"\n{program} ({what}), median of {arguments.rounds} rounds of {arguments.pairs} pairs")
            print(f"    {'':18} {'ns a pair':>10} {'added':>8} {'slower':>8}")
            for name, value in ns.items():
                print(f"    {name:18} {value:10.1f} {value - ns['plain']:8.1f} {value / ns['plain']:6.1f} x")
            for promise, holds in judge(program, ns):
                print(f"    {'ok    ' if holds else 'MISSED'}  {promise}", flush=True)
                missed += not holds
    sys.exit(1 if arguments.check and missed else 0)


if __name__ == "__main__":
    main()
