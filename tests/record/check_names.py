"""check_names.py BERTH SUBJECT READ FIRST OTHER: which names a trace gives to its call stacks, where files are not what they were."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, subject, read, first = paths[:4]


def record(*words, options=()):
    subprocess.run([berth, "record", "-q", "-o", "out.trace", *options, "--", *words], check=True, timeout=60)


def names():
    """Of the frames of each block that a library took, from the innermost outward."""
    lines = subprocess.run([read, "out.trace"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [line.split()[6:] for line in lines if line.startswith("block ") and line.split()[3] == "4321"]


# Inlined functions are told with those that they have become a part of, also of a library that is not loaded any more at the end.
record(subject, "turns", first)
told = names()
check(len(told) == 1 and told[0][:3] == ["inlined_callee", "first_turn", "run"], f"a library that was unloaded, and what is inlined in it: {told}")
finish()
