"""The tests of a build folder, read from ctest, and one run of one of them: what tools/repeat and tools/mutants share."""
import json
import os
import re
import signal
import subprocess


def read_tests(folder):
    """Every test: a dict as ctest describes it, its properties as another dict. It has no command while that is not built."""
    said = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True, capture_output=True).stdout
    tests = json.loads(said)["tests"]
    for test in tests:
        test["properties"] = {each["name"]: each["value"] for each in test.get("properties", [])}
    return tests


def run_once(test, limit_seconds=None):
    """'' if it passed, 'skip', or what went wrong; and what it printed."""
    properties = test["properties"]
    environment = dict(os.environ)
    environment.update(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))
    limit = limit_seconds or float(properties.get("TIMEOUT", 300))
    # In a session of its own, so that what it has started ends with it.
    with subprocess.Popen(test["command"], env=environment, cwd=properties.get("WORKING_DIRECTORY"), start_new_session=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return f"no end after {limit:.0f} s", said
    if process.returncode == properties.get("SKIP_RETURN_CODE"):
        return "skip", said
    text = said.decode(errors="replace")
    # With an expression to match, ctest ignores the exit code.
    if "PASS_REGULAR_EXPRESSION" in properties:
        passed = any(re.search(each, text, re.S) for each in properties["PASS_REGULAR_EXPRESSION"])
        return "" if passed else "it does not say what it should", said
    return "" if process.returncode == 0 else f"exit code {process.returncode}", said
