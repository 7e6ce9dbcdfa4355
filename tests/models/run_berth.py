"""What the checks of models share: the command under test, a folder for files, and how a check ends."""
import json
import os
import subprocess
import sys
import tempfile

berth = sys.argv[1]
_kept = tempfile.TemporaryDirectory()
folder = _kept.name


def save(data, name):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def load(path):
    with open(path, "rb") as file:
        return file.read()


def run(*words):
    """Exit code, stdout, stderr of the command; a crash is a failure whatever is expected."""
    done = subprocess.run([berth, *words], capture_output=True, check=False)
    assert done.returncode in (0, 1, 2, 3, 4), (words, done.returncode, done.stderr)
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")


def plan_json(path, *words, code=0):
    got, out, err = run("plan", path, "--json", *words)
    assert got == code, (got, err)
    return json.loads(out)


def complaint_of(path, *words, code):
    got, _, err = run("plan", path, *words)
    assert got == code, (got, err)
    return err


def run_cases(names):
    """Runs every function of the module that is called test_..."""
    cases = [value for name, value in sorted(names.items()) if name.startswith("test_")]
    for case in cases:
        case()
    print(f"{len(cases)} cases")
