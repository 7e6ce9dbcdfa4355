"""What checks that run programs share: the programs' paths, a folder of its own to run in, and how a check ends.

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    from checking import check, finish, folder, paths"""
import os
import sys
import tempfile

paths = [os.path.abspath(path) for path in sys.argv[1:]]
_kept = tempfile.TemporaryDirectory()
folder = _kept.name
os.chdir(folder)
_failures = 0


def check(condition, what):
    global _failures
    if not condition:
        _failures += 1
        print("FAILED:", what)


def finish():
    sys.exit(1 if _failures else 0)
