"""check.py BERTH SUBJECT READ [C++ SUBJECT]: what a program does is in its trace, however it ends."""
import base64
import glob
import json
import mmap
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, subject, read = paths[:3]
cpp = paths[3] if len(paths) > 3 else None


def record(*words, options=(), **more):
    """Runs the subject under the recorder. The finished process, and the lines of its trace."""
    done = subprocess.run([berth, "record", "-o", "out.trace", *options, "--", *words], capture_output=True, text=True, timeout=120, **more)
    lines = []
    if os.path.exists("out.trace"):
        lines = subprocess.run([read, "out.trace"], capture_output=True, text=True, check=True).stdout.splitlines()
        os.remove("out.trace")
    check(not os.path.exists("out.trace.live") and not glob.glob(".berth.*.tmp"), "nothing is left beside the trace")
    return done, lines


def marked(lines, process=None, size=4321):
    """Blocks of the size that only the subject asks for."""
    return [line.split() for line in lines if line.startswith("block ") and line.split()[3] == str(size)
            and (process is None or line.split()[1] == str(process))]


def no_damage(lines, what):
    check(not [line for line in lines if line.startswith("notice")], what + ": no damage")
    check(lines and lines[-1].endswith("lost 0"), what + ": no address twice at once: " + (lines[-1] if lines else "nothing"))


done, lines = record(subject, "pairs", "20000")
check(done.returncode == 0, "its exit code is the program's")
check(len(marked(lines)) == 20000, f"every allocation is there: {len(marked(lines))} of 20000")
check(all(block[4] == "freed" for block in marked(lines)), "every free is there")
no_damage(lines, "pairs")
first = marked(lines)[0][6:] if marked(lines) else []
check(first[:2] == ["innermost", "caller_of_innermost"], f"call stacks have names: {first}")

# Each process maps the same files again. They are read once for all: a descriptor for each would leave the last without names.
done, lines = record("sh", "-c", 'for i in $(seq 40); do ls / >&2; done; "$0" pairs 1', subject,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
check(done.returncode == 0, f"many processes and few descriptors: {done.returncode}")
names = [block[6:8] for block in marked(lines)]
check(names == [["innermost", "caller_of_innermost"]], f"the last of many processes has names too: {names}")

# Without symbols a place is one holder, wherever a process has its module and whoever called.
subprocess.run([berth, "record", "-q", "-o", "places.trace", "--no-symbols", "--", "sh", "-c", '"$0" pairs 300; "$0" pairs 300', subject], check=True)
page = json.loads(subprocess.run([berth, "view", "places.trace", "--json"], capture_output=True, text=True, check=True).stdout)
size, at = 0, 0
for byte in base64.b64decode(page["frames"]["address"]):
    size, at = size | (byte & 127) << at, at + 7
    if byte < 128:
        check(size < 1 << 32, f"the page tells places from the begin of their module: {size:x}")
        size, at = 0, 0
holders = json.loads(subprocess.run([berth, "top", "places.trace", "--json"], capture_output=True, text=True, check=True).stdout)["holders"]
os.remove("places.trace")
counts = [h["allocations"] for h in holders if h["name"].startswith(os.path.basename(subject) + "+0x") and h["allocations"] >= 300]
check(counts and max(counts) >= 600, f"a place in two processes is one holder: {counts}")
check(len({h["name"] for h in holders}) == len(holders), "and no two have one name")

done, lines = record(subject, "threads", "20000")
check(done.returncode == 0, f"threads end as they should: {done.returncode}")
check(len(marked(lines)) == 160000, f"of eight threads too: {len(marked(lines))}")
check(all(block[4] == "freed" for block in marked(lines)), "and their frees")
check(len({block[2] for block in marked(lines)}) == 8, "each thread has a number")
no_damage(lines, "threads")

done, lines = record(subject, "late")
check(len(marked(lines)) == 2 and len({block[2] for block in marked(lines)}) == 2, f"a thread's last pair has a number of its own: {marked(lines)}")
no_damage(lines, "late")

done, lines = record(subject, "named")
threads = [line.split(" ", 3)[1:] for line in lines if line.startswith("thread ")]
check(threads == [["0", "0", "the first"], ["0", "1", "worker"]], f"threads have the names that they had last: {threads}")
done, lines = record(subject, "named", options=["--redact"])
check(len(marked(lines)) == 3 and not any(line.startswith("thread ") for line in lines), "which --redact leaves out")
subprocess.run([berth, "record", "-q", "-o", "named.trace", "--", subject, "named"], check=True)
for words in (["top", "named.trace", "--json"], ["top", "named.trace"]):
    text = subprocess.run([berth, *words], capture_output=True, text=True, check=True).stdout
    check("thread 2 (worker)" in text and "thread 1 (the first)" in text, f"berth {words} shows them: {text}")
text = subprocess.run([berth, "convert", "named.trace", "--to", "chrome"], capture_output=True, text=True, check=True).stdout
names = [(e["pid"], e["tid"], e["args"]["name"]) for e in json.loads(text)["traceEvents"] if e["name"] == "thread_name" and e["ph"] == "M"]
check(names == [(1, 0, "the first"), (1, 1, "worker")], f"so does Chrome's JSON: {names}")
subprocess.run([berth, "view", "named.trace", "--json", "-o", "view.json"], check=True, stderr=subprocess.DEVNULL)
with open("view.json") as file:
    view = json.load(file)
check([[number, view["texts"][text]] for number, text in view["spaces"][0]["threads"]] == [[0, "the first"], [1, "worker"]], "and the page")
subprocess.run([berth, "convert", "named.trace", "-o", "again.trace"], check=True)
check("thread 2 (worker)" in subprocess.run([berth, "top", "again.trace"], capture_output=True, text=True, check=True).stdout,
      "a converted trace keeps them")
done, lines = record(subject, "fork", "10")
threads = sorted(line.split(" ", 3)[1:] for line in lines if line.startswith("thread "))
check(threads == [["0", "0", "the parent"], ["1", "0", os.path.basename(subject)[:15]]], f"a child's threads have names too: {threads}")

done, lines = record(subject, "kill", "30000", options=["--stacks", "0"])
check(done.returncode == 128 + signal.SIGKILL, f"killed is 137, not {done.returncode}")
check(len(marked(lines)) == 30000, f"nothing is lost by SIGKILL: {len(marked(lines))}")
no_damage(lines, "kill")

done, lines = record(subject, "fork", "5000")
check(len(marked(lines, 0)) == 10000 and len(marked(lines, 1)) == 5000, "a fork is a process of its own")
no_damage(lines, "fork")
done, lines = record(subject, "exec", "5000")
check(len(marked(lines, 0)) == 5000 and len(marked(lines, 1)) == 5000, "so is a program that it becomes")
check(any(line.startswith("process 1 ") and "pairs" in line for line in lines), "commands are told")
done, lines = record("sh", "-c", f"{subject} pairs 100; {subject} pairs 100")
check(len(marked(lines)) == 200, "and those that a shell starts")

done, lines = record(subject, "closed", "40000")
check(len(marked(lines)) == 40000, f"closed descriptors and another folder do not matter: {len(marked(lines))}")
done, lines = record(subject, "family")
check(len(marked(lines)) == 2 and len(marked(lines, size=4322)) == 1 and len(marked(lines, size=8642)) == 1
      and len(marked(lines, size=4352)) == 1, "the whole family of malloc is told")
segments = [line.split()[1:] for line in lines if line.startswith("segment")]
check(["65536", "alive"] in segments and ["917504", "alive"] in segments and ["1048576", "freed"] in segments,
      f"mappings that are given back in parts: {segments}")
check(len(marked(lines, size=4321 + 2001)) == 1, "what a constructor takes before main is told")

# Mappings: what the system refuses ends nothing; what is mapped over, as a whole or in part, ends; pages are given back whole.
done, lines = record(subject, "maps")
pages = [(int(line.split()[1]) // mmap.PAGESIZE, line.split()[2]) for line in lines if line.startswith("segment ")]
wanted = [(1501, "alive"), (1502, "freed"), (501, "alive"), (700, "alive"), (301, "alive"), (1503, "freed"), (1504, "freed"),
          (1505, "freed"), (1506, "freed"), (1505, "alive"), (1, "alive")]
check(done.returncode == 0 and sorted(pages) == sorted(wanted), f"mappings are what is mapped: {pages}")

# Many places that allocate: what an event costs on the disk when packed.
subprocess.run([berth, "record", "-q", "-o", "sites.trace", "--", subject, "sites", "2000"], check=True)
with open("sites.trace", "rb") as file:
    packed = file.read()
lines = subprocess.run([read, "sites.trace"], capture_output=True, text=True, check=True).stdout.splitlines()
blocks = [line.split() for line in lines if line.startswith("block ")]
places = {tuple(block[6:]) for block in blocks}
events = 2 * len(blocks) - len([block for block in blocks if block[4] == "alive"])
os.remove("sites.trace")
no_damage(lines, "many places")
check(events > 100000 and len(places) > 128, f"{events} events of {len(places)} places")
if b"\x28\xb5\x2f\xfd" in packed:  # what zstd packs begins so; some builds have none
    check(len(packed) <= 4 * events, f"at most 4 bytes an event: {len(packed) / events:.2f}")

done, lines = record(subject, "refused")
refused = [int(line.split()[1]) for line in lines if line.startswith("moment ")]
check(done.returncode == 0 and refused == [1 << 60, (1 << 64) - 1, (1 << 60) + 1, (1 << 60) + 2, (1 << 64) - 1], f"what malloc refuses is told: {refused}")
subprocess.run([berth, "record", "-q", "-o", "refused.trace", "--", subject, "refused"], check=True)
for number, size in ((1, 1 << 60), (2, (1 << 64) - 1)):
    done = subprocess.run([berth, "explain-oom", "refused.trace", "--failure", str(number), "--json"], capture_output=True, text=True)
    answer = json.loads(done.stdout) if done.returncode == 0 else {}
    check(answer.get("asked_bytes") == size and answer.get("asked_for", "").startswith("main") and answer.get("live_bytes", 0) >= 1000,
          f"who asked for it, and what was alive: {done}")
if cpp:
    done, lines = record(cpp, "throws")
    refused = [int(line.split()[1]) for line in lines if line.startswith("moment ")]
    check(done.returncode == 0 and refused == [1 << 60] * 2, f"and what operator new throws for: {refused} {done}")
    check(len(marked(lines)) == 1, "what comes after a throw is told again")
    done, lines = record(cpp, "names")
    names = " ".join(" ".join(block[6:]) for block in marked(lines, size=8000))
    check("fleet::Ship<unsigned short>::load" in names and "_Z" not in names, f"C++ names can be read: {names}")
    subprocess.run([berth, "record", "-q", "-o", "cpp.trace", "--", cpp, "names"], check=True)
    text = subprocess.run([berth, "top", "cpp.trace"], capture_output=True, text=True, check=True).stdout
    check("fleet::Ship<unsigned short>::load(unsigned long)" in text and "_Z" not in text, f"operator new is passed over: {text}")
done, lines = record(subject, "exit", "7")
check(done.returncode == 7, "the exit code comes through")
done, lines = record(subject, "pairs", "10", options=["--min-bytes", "5000"])
check(not marked(lines), "--min-bytes leaves out what is smaller")
done, lines = record(subject, "pairs", "10", options=["--min-bytes", "4325"])  # malloc rounds the blocks up to a little more
check(lines and lines[-1].startswith("unknown 0 "), f"of the same blocks as it leaves out the frees: {lines[-1:]}")
done, lines = record(subject, "pairs", "10", options=["--redact"])
check(len(marked(lines)) == 10 and not any("innermost" in line or "subject" in line for line in lines), "--redact names nothing")
done, lines = record(subject, "pairs", "10", options=["--quiet"])
check(done.stderr == "", "--quiet is quiet")

# Switched on and off while the program runs, and a signal that goes on to it.
run = subprocess.Popen([berth, "record", "-o", "out.trace", "--paused", "--", subject, "wait", "1000"], stdin=subprocess.PIPE,
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
check(run.stdout.readline() == "ready\n", "it runs")


def turn():
    run.stdin.write("go\n")
    run.stdin.flush()
    run.stdout.readline()


def toggle(paused):
    """The header's byte 76 says whether recording pauses: it is there before the program is told to go on."""
    run.send_signal(signal.SIGUSR1)
    while True:
        with open("out.trace.live", "rb") as file:
            file.seek(76)
            if file.read(1) == bytes([paused]):
                return


turn()
toggle(0)
turn()
toggle(1)
turn()
run.stdin.close()
check(run.wait(timeout=60) == 0, "it ends as it should")
lines = subprocess.run([read, "out.trace"], capture_output=True, text=True, check=True).stdout.splitlines()
check(len(marked(lines)) == 1000, f"one turn of four was recorded: {len(marked(lines))}")
os.remove("out.trace")

run = subprocess.Popen([berth, "record", "-o", "out.trace", "--", subject, "term"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
check(run.stdout.readline() == "ready\n", "it runs")
run.send_signal(signal.SIGTERM)
check(run.wait(timeout=60) == 128 + signal.SIGTERM, "SIGTERM goes on to the program")
check(os.path.exists("out.trace"), "and its trace is kept")
os.remove("out.trace")

# What cannot be recorded is refused with words.
with open("program.c", "w") as file:
    file.write("int main(void) { return 0; }\n")
if subprocess.run(["cc", "-static", "-o", "fixed", "program.c"], stderr=subprocess.DEVNULL).returncode == 0:
    done, lines = record("./fixed")
    check(done.returncode == 3 and "linked statically" in done.stderr, f"a static program: {done.stderr}")
# Rights of its owner: root may record such a program too, so this is asked by somebody else, who sees a copy of the command.
shutil.copy("/bin/true", "owned")
os.chmod("owned", 0o4755)
os.chmod(".", 0o755)
shutil.copy(berth, "berth")
somebody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
done = subprocess.run(["./berth", "record", "-o", "owned.trace", "--", "./owned"], capture_output=True, text=True, **somebody)
check(done.returncode == 3 and "setuid" in done.stderr and not os.path.exists("owned.trace"), f"a program with its owner's rights: {done}")
done, lines = record("./no-such-program")
check(done.returncode == 2 and "no such program" in done.stderr, "a program that is not there")
done = subprocess.run([berth, "record", "ls"], capture_output=True, text=True)
check(done.returncode == 2 and "after '--'" in done.stderr, "a program without its dashes")
done = subprocess.run([berth, "record", "-o", "/nowhere/x", "--", "true"], capture_output=True, text=True)
check(done.returncode == 4 and "/nowhere/x" in done.stderr, "a trace that cannot be written")

# Mappings are not all that a program takes: malloc also moves the break, and what-if does not call them what was taken.
subprocess.run([berth, "record", "-q", "--no-symbols", "-o", "heap.trace", "--", sys.executable, "-c", "x = [bytes(5000) for i in range(400)]"], check=True)
said = json.loads(subprocess.run([berth, "what-if", "heap.trace", "--json"], capture_output=True, text=True, check=True).stdout)
check(not [p for p in said["policies"] if "taken from the device" in p["name"]], f"what was taken is not known: {said['policies']}")
os.remove("heap.trace")

# Nothing to tell is no sign of a cleaned environment where the recorder was in the process.
done, lines = record(subject, "pairs", "1", options=["--min-bytes", "1G"])
check("0 events of 1 process" in done.stderr and "environment" not in done.stderr, f"all was left out: {done.stderr}")

# A second recording into the same file leaves the first one alone, from its begin to its end; a reader beside it may look.
run = subprocess.Popen([berth, "record", "-q", "-o", "out.trace", "--", subject, "wait", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                       text=True)
check(run.stdout.readline() == "ready\n", "it runs")
done = subprocess.run([berth, "record", "-o", "out.trace", "--", "echo", "ran"], capture_output=True, text=True)
check(done.returncode == 4 and done.stdout == "" and "is being written" in done.stderr, f"a second recording is refused: {done}")
top = subprocess.run([berth, "top", "out.trace.live", "--json"], capture_output=True, text=True)
check(top.returncode == 0, f"berth top reads it meanwhile: {top.stderr}")
turn()
run.stdin.close()
check(run.wait(timeout=60) == 0, "the first one ends as it should")
lines = subprocess.run([read, "out.trace"], capture_output=True, text=True, check=True).stdout.splitlines()
check(len(marked(lines)) == 2000, f"and has all that its program did: {len(marked(lines))}")
done, lines = record(subject, "pairs", "10")
check(len(marked(lines)) == 10, "after that the file is anybody's")

# Where a trace may go: through a link, into a device; what cannot be is said before the program runs.
os.mkdir("there")
os.symlink("there/app.trace", "link.trace")
subprocess.run([berth, "record", "-q", "-o", "link.trace", "--", "true"], check=True)
check(os.path.islink("link.trace") and os.listdir("there") == ["app.trace"], "a link stays one, and its target is written")
subprocess.run([berth, "record", "-q", "-o", "/dev/null", "--", "true"], check=True)
check(stat.S_ISCHR(os.stat("/dev/null").st_mode) and not os.path.exists("/dev/null.live"), "a device stays one")
for place, code in (("there", 4), ("-", 2), ("no/such/app.trace", 4)):
    done = subprocess.run([berth, "record", "-o", place, "--", "echo", "ran"], capture_output=True, text=True)
    check(done.returncode == code and done.stdout == "" and done.stderr, f"nothing runs for a trace in {place}: {done}")

finish()
