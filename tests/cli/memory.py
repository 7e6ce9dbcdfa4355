#!/usr/bin/env python3
"""memory.py BERTH: what `berth plan -o` and `berth check` of its plan, alone and with its problem, take at most, in bytes a row, for
problems of many kinds.

A million rows each; the process itself is 3 bytes a row of it. Nothing here depends on the machine's speed.
"""
import os
import random
import sys
import tempfile

ROWS = 1_000_000
BYTES_A_ROW = 120
BYTES_A_ROW_OF_TWO = 145  # a problem and a plan in memory


def short_lives(rng, i):
    life = 1 + int(rng.random() * 3) if rng.random() < 0.95 else 1 + int(rng.random() * 200)
    return f"{i},{i},{i + life},{(1 + int(rng.random() * 64)) * 1024}\n"


def forth_and_back(rng, i):
    upper = ROWS - i if i < ROWS // 2 and rng.random() < 0.5 else i + 2
    return f"{i},{i},{upper},{(1 + int(rng.random() * 64)) * 512}\n"


def named(rng, i):
    lower = int(rng.random() * ROWS)
    return f"layer.{i}.weight,{lower},{lower + 1 + int(rng.random() * 100)},{1 + int(rng.random() * 100000)}\n"


def peak_bytes(*command):
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"berth {command[1]} ended with status {status}")
    return usage.ru_maxrss * 1024


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        problem, planned = os.path.join(folder, "problem.csv"), os.path.join(folder, "planned.csv")
        for make in (short_lives, forth_and_back, named):
            rng = random.Random(1)
            with open(problem, "w", encoding="ascii") as out:
                out.write("id,lower,upper,size\n")
                out.writelines(make(rng, i) for i in range(ROWS))
            for words in (["plan", problem, "-o", planned], ["check", planned], ["check", problem, planned]):
                bytes_a_row = peak_bytes(sys.argv[1], *words) / ROWS
                files = len(words) - 1 if words[0] == "check" else 1
                print(f"{make.__name__}, {words[0]} of {files}: {bytes_a_row:.1f} bytes a row")
                failed |= bytes_a_row > (BYTES_A_ROW_OF_TWO if files == 2 else BYTES_A_ROW)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
