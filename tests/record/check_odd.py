"""check_odd.py BERTH ODD READ [LIBRARY]: programs that do what few do end as they would without the recorder."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, odd, read = paths[:3]
libraries = paths[3:]


def record(*words, options=()):
    """Runs it with and without the recorder. The lines of its trace, and what the command said."""
    plain = subprocess.run([odd, *words], capture_output=True, text=True, timeout=120)
    check(plain.returncode == 0, f"{words} by itself: {plain.returncode} {plain.stderr}")
    done = subprocess.run([berth, "record", "-q", "-o", "odd.trace", *options, "--", odd, *words], capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"{words} {options} ends as it would: {done.returncode} {done.stderr}")
    lines = subprocess.run([read, "odd.trace"], capture_output=True, text=True, check=True).stdout.splitlines()
    os.remove("odd.trace")
    return lines, done.stderr


def blocks(lines, size=4321):
    return [line.split() for line in lines if line.startswith("block ") and line.split()[3] == str(size)]


def notices(lines):
    return [line for line in lines if line.startswith("notice")]


lines, said = record("cancel")
check(len(blocks(lines)) == 120000 and not notices(lines), f"cancelled: {len(blocks(lines))} blocks {notices(lines)}")
lines, said = record("errno")
check(not notices(lines), f"errno: {notices(lines)}")

lines, said = record("limit")
lost = re.findall("([0-9]+) events could not be written; was the disk full", said)
check(len(lost) == 1 and 2 * len(blocks(lines)) + int(lost[0]) >= 120000 - 1, f"what is missing is counted: {len(blocks(lines))} blocks {said}")

lines, said = record("clone")
check(len(blocks(lines)) == 120010 and not notices(lines), f"clone: {len(blocks(lines))} blocks {notices(lines)}")
check(len({block[1] for block in blocks(lines)}) == 2, "a child of clone is a process of its own")
check(all(block[4] == "freed" for block in blocks(lines)), "and nobody frees for another")

lines, said = record("fork")
for size, count in ((5001, 6), (5002, 12)):
    check(len(blocks(lines, size)) == count, f"what handlers of a fork take, {size}: {len(blocks(lines, size))} blocks {notices(lines)}")
processes = {block[1] for block in blocks(lines)}
check(len(processes) == 7, f"each fork is one process: {sorted(processes)}")

lines, said = record("threads")
check(len(blocks(lines)) == 600, f"threads one after the other: {len(blocks(lines))}")

lines, said = record("remap")
segments = [line for line in lines if line.startswith("segment 3145728 ")]
check(segments == ["segment 3145728 freed", "segment 3145728 alive"], f"who came during mremap stays: {segments}")

lines, said = record("lie")
names = [block[6:9] for block in blocks(lines)]
wanted = [["odd_take", "odd_flexible", "odd_wide"], ["odd_take", "odd_flexible", "odd_narrow"]]
check(names == wanted, f"frames of one stack pointer that differ in size: {names}")

for depth in ("16", "64"):
    lines, said = record("signal", options=["--stacks", depth])
    check(len(blocks(lines)) == 2, f"a small signal stack: {len(blocks(lines))}")

for library in libraries:
    lines, said = record("library", library)
    check(len(blocks(lines, 4322)) == 20, f"a library of C++ in a program of C: {len(blocks(lines, 4322))}")

finish()
