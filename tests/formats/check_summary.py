"""check_summary.py BERTH GENERATOR: the summary of a snapshot takes memory for what is alive at once, not for its events: three times
the events take no more, and tell the same."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import paths  # noqa: E402

berth, generator = paths


def summary(name):
    """The facts, and the most memory that the command had, in KiB."""
    run = subprocess.Popen([berth, "top", "--json", name], stdout=subprocess.PIPE, text=True)
    facts = json.load(run.stdout)
    _, status, usage = os.wait4(run.pid, 0)
    assert status == 0, status
    return facts, usage.ru_maxrss


subprocess.run([sys.executable, generator, "1", "once.pickle"], check=True)
once, once_kib = summary("once.pickle")
subprocess.run([sys.executable, generator, str(3 * os.path.getsize("once.pickle") - 1000000), "thrice.pickle"], check=True)
thrice, thrice_kib = summary("thrice.pickle")
print(f"{once['allocations']} allocations in {once_kib} KiB, {thrice['allocations']} in {thrice_kib} KiB")
assert thrice["allocations"] == 3 * once["allocations"] and once["allocations"] > 100000
assert thrice["peak_bytes"] == once["peak_bytes"] and thrice["live_bytes"] == 0
assert [row["at_peak_bytes"] for row in thrice["holders"]] == [row["at_peak_bytes"] for row in once["holders"]]
# The file itself is 20 and 60 MB: 4 MiB are what the system may leave mapped of it.
assert thrice_kib < once_kib + 4096, "memory grows with events"

# The same where all events are appended at once. (Written elsewhere: what starts a process counts as its memory.)
taken = {}
for events in (20000, 60000):
    subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_pickler.py"), str(events), "at_once.pickle"], check=True)
    facts, taken[events] = summary("at_once.pickle")
    assert facts["allocations"] == events // 2 and facts["peak_bytes"] == 512, facts
print(f"of C++: {taken} KiB")
assert taken[60000] < taken[20000] + 4096, "memory grows with events"
