#!/usr/bin/env python3
"""What the verbs that answer questions and draw pages promise about time and memory.

    ./dev bench questions|view [--check] [--rounds N] [--clock processor] [--small]

questions: a million events answered by explain-oom, what-if, diff and bench-allocators, from a trace, RMM's log and a snapshot;
ten million events of a trace, and a snapshot of 1 GB, summarised by top. view: the page of ten million events, and how long a frame takes
while one pans over a million blocks. Of several rounds the fastest counts: other work only ever adds time. --clock processor judges by
processor time instead, for a machine with other work. --check: exit 1 unless every figure is met.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VIEW = os.path.join(os.path.dirname(HERE), "view")
MILLION, LIVE = 1_000_000, 20_000
SUMMARY_BYTES = 16_000_000  # for 500 stacks of eight frames and 2,000 blocks alive; 11 of them are Python's own, before it runs the command
PAGE_BYTES = 15_000_000


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic", choices=("questions", "view"))
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(HERE)), "build-bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--small", action="store_true", help="a hundredth of everything, to see that it works")
    return parser.parse_args()


def run(words):
    """Seconds by the wall and of the processor, and the most memory of one process, in bytes."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.execv(words[0], words)
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: the answer is no
        sys.exit(f"{' '.join(words)} fails: status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


class Figures:
    def __init__(self, arguments):
        self.arguments, self.missed = arguments, 0
        self.berth = os.path.join(arguments.build, "berth")
        print(f"  {'question':42}{'wall':>9}{'processor':>11}{'memory':>10}  {'at most':<22}")

    def row(self, what, measured, limit, met):
        print(f"  {what:42}{measured}  {limit:<22}{'met' if met else 'NOT met'}", flush=True)
        self.missed += not met

    def ask(self, what, words, seconds, most_bytes=None):
        """The best of the rounds; `seconds` None is for what has no figure of its own."""
        best = [min(column) for column in zip(*(run([self.berth, *words]) for _ in range(self.arguments.rounds)))]
        wall, processor, memory = best
        limits = ([f"{seconds} s"] if seconds else []) + ([f"{most_bytes / 1e6:.0f} MB"] if most_bytes else [])
        taken = wall if self.arguments.clock == "wall" else processor
        met = (not seconds or taken <= seconds) and (not most_bytes or memory <= most_bytes)
        self.row(what, f"{wall:7.2f} s{processor:9.2f} s{memory / 1e6:7.1f} MB", ", ".join(limits), met)


def make(arguments, kind, events, name, *more):
    """Writes a recording; answers with the most that is alive in it."""
    events = events // 100 if arguments.small else events
    program = os.path.join(arguments.build, "bench", "questions_inputs")
    done = subprocess.run([program, kind, str(events), str(LIVE), name, *more], check=True, capture_output=True, text=True)
    return int(done.stdout)


def make_snapshot(arguments, size, name):
    size = size // 100 if arguments.small else size
    done = subprocess.run([sys.executable, os.path.join(VIEW, "snapshot.py"), str(size), name], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def questions(arguments):
    figures = Figures(arguments)
    peak = make(arguments, "trace", MILLION, "run.trace")
    make(arguments, "trace", MILLION, "grown.trace", "20")
    make(arguments, "rmm", MILLION, "run.csv")
    make(arguments, "rmm", MILLION, "grown.csv", "20")
    events = make_snapshot(arguments, 53_000_000, "run.pickle")
    if events < MILLION and not arguments.small:
        sys.exit(f"the snapshot has only {events} events")
    for name, other in (("run.trace", "grown.trace"), ("run.csv", "grown.csv"), ("run.pickle", "run.pickle")):
        limit = "1G" if name == "run.pickle" else str(peak * 9 // 10)
        figures.ask(f"explain-oom {name}", ["explain-oom", name, "--limit", limit, "--json"], 3)
        figures.ask(f"what-if {name}", ["what-if", name, "--json"], 3)
        figures.ask(f"what-if {name} --limit", ["what-if", name, "--limit", limit, "--json"], 3)
        figures.ask(f"diff {name}", ["diff", name, other, "--json"], 3)
        if name != "run.pickle":  # its blocks are a device's, gigabytes of them: nothing to touch for malloc
            figures.ask(f"bench-allocators {name}", ["bench-allocators", name, "--json", "-q"], 3)
    make(arguments, "trace", 10 * MILLION, "large.trace")
    figures.ask("top, 10 million events of a trace", ["top", "large.trace", "--json"], 5)
    os.unlink("large.trace")
    figures.ask("top, a snapshot of 53 MB", ["top", "run.pickle", "--json"], None, SUMMARY_BYTES)
    make_snapshot(arguments, 1_000_000_000, "large.pickle")
    figures.ask("top, a snapshot of 1 GB", ["top", "large.pickle", "--json"], 10, SUMMARY_BYTES)
    return figures


def fetch_driver(build):
    """npm's playwright-core, unpacked; None where it is not to be had."""
    place = os.path.join(build, "npm")
    driver = os.path.join(place, "package")
    if not os.path.isdir(driver):
        os.makedirs(place, exist_ok=True)
        done = subprocess.run(["npm", "pack", "--silent", "playwright-core"], cwd=place, capture_output=True, text=True)
        if done.returncode != 0:
            return None
        subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=place, check=True)
    return driver


def view(arguments):
    figures = Figures(arguments)
    make(arguments, "trace", 10 * MILLION, "large.trace")
    figures.ask("view, 10 million events", ["view", "large.trace", "-q", "-o", "large.html"], None)
    size = os.path.getsize("large.html")
    figures.row("the page of them", f"{size / 1e6:27.2f} MB", f"{PAGE_BYTES / 1e6:.0f} MB", size < PAGE_BYTES)
    make(arguments, "trace", 2 * MILLION, "million.trace")
    figures.ask("view, a million blocks", ["view", "million.trace", "-q", "--detail", "40M", "-o", "million.html"], None)
    driver = fetch_driver(arguments.build)
    if not driver or not shutil.which("node") or not os.path.exists("/usr/bin/chromium"):
        sys.exit("panning is not measured: it needs node, npm with its registry, and Chromium")
    for page in ("million.html", "large.html"):
        done = subprocess.run(["node", os.path.join(VIEW, "pan.js"), driver, page], capture_output=True, text=True)
        if done.returncode > 1 or not done.stdout:
            sys.exit(f"pan.js fails: {done.stderr}")
        for line in done.stdout.splitlines():
            print(f"    {line}")
        figures.row(f"panning over {page}", " " * 30, "33 ms, the median", done.returncode == 0)
    return figures


def main():
    arguments = parse_arguments()
    arguments.build = os.path.abspath(arguments.build)
    load = os.getloadavg()[0]
    print(f"{arguments.topic}: judged by the {arguments.clock} clock, the best of {arguments.rounds}")
    with tempfile.TemporaryDirectory(prefix="berth-figures-", dir=arguments.build) as folder:
        os.chdir(folder)
        figures = {"questions": questions, "view": view}[arguments.topic](arguments)
        os.chdir(arguments.build)
    print(f"  load before {load:.1f}, after {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores; {figures.missed} figure(s) not met")
    sys.exit(1 if arguments.check and figures.missed else 0)


main()
