"""check.py BERTH SUBJECT: berth top shows what a program that is recorded holds, while it runs. Nothing here waits for a time: a
picture is read until it shows what the program has said it did, and only a test that has failed runs out of time."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, subject = paths[:2]
SIZE = 4321


class Program:
    """The subject under the recorder; each turn keeps 100 more blocks."""

    def __init__(self):
        self.run = subprocess.Popen([berth, "record", "-q", "-o", "out.trace", "--", subject, "hold", "100"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
        self.pid = int(self.run.stdout.readline())

    def turn(self):
        self.run.stdin.write("go\n")
        self.run.stdin.flush()
        assert self.run.stdout.readline() == "done\n"

    def end(self):
        self.run.stdin.close()
        check(self.run.wait(timeout=60) == 0, "the program ends as it should")
        self.run.stdout.close()


class Screen:
    """berth top on a terminal of ours."""

    def __init__(self, *words, columns=100, lines=30):
        self.mine, other = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(other)
        self.run = subprocess.Popen([berth, "top", "--interval", "0.02", *words], stdin=other, stdout=other, stderr=other,
                                    env=dict(os.environ, TERM="xterm"), start_new_session=True,
                                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.other = other
        self.bytes = b""

    def resize(self, columns, lines):
        fcntl.ioctl(self.mine, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def key(self, key):
        os.write(self.mine, key.encode())

    def read(self):
        ready, _, _ = select.select([self.mine], [], [], 1)
        if ready:
            self.bytes += os.read(self.mine, 65536)
        return bool(ready)

    def picture(self, wanted, what):
        """The lines of the next picture for which wanted(lines) holds."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            start = self.bytes.find(b"\033[H")
            end = self.bytes.find(b"\033[J", start)
            if start < 0 or end < 0:
                if not self.read() and self.run.poll() is not None:
                    break
                continue
            lines = self.bytes[start + 3:end].decode().split("\033[K\r\n")[:-1]
            self.bytes = self.bytes[end + 3:]
            if wanted(lines):
                return lines
        check(False, f"a picture with {what} comes; the last bytes: {self.bytes[-300:]!r}")
        return []

    def end(self, code, what):
        while self.run.poll() is None:
            self.read()
        while self.read():
            pass
        check(self.run.returncode == code, f"{what}: exit {self.run.returncode}")
        check(b"\033[?25h\033[?1049l" in self.bytes, what + ": the screen is given back")
        check(termios.tcgetattr(self.other)[3] == self.before[3], what + ": so are the keys")
        os.close(self.mine)
        os.close(self.other)


def top(*words):
    return subprocess.run([berth, "top", *words], capture_output=True, text=True, timeout=60)


def holder(*words):
    done = top("--json", *words)
    check(done.returncode == 0, f"top {words}: {done.stderr}")
    facts = json.loads(done.stdout)
    rows = [row for row in facts["holders"] if row["name"].startswith("innermost")]
    return facts, rows[0] if rows else {"live_bytes": 0, "live_blocks": 0}


def shows(blocks):
    """Whether the row of the function that allocates has so many blocks."""
    return lambda lines: any(re.search(rf" {blocks} +\d+  innermost", line) for line in lines)


program = Program()
for name in (str(program.pid), "out.trace", "out.trace.live", str(program.run.pid)):
    check(holder(name)[1]["live_blocks"] == 0, f"{name}: nothing is held yet")
program.turn()
for name in (str(program.pid), "out.trace", "out.trace.live", str(program.run.pid)):
    facts, row = holder(name)
    check(row["live_blocks"] == 100 and row["live_bytes"] == 100 * SIZE, f"{name}: what it says it holds: {row}")
    check(facts["state"] == "recording", f"{name}: {facts['state']}")
check("subject.c" in row["name"] or row["name"] == "innermost", f"call sites have names: {row['name']}")
plain = top("out.trace")
check(plain.returncode == 0 and "innermost" in plain.stdout and "\033" not in plain.stdout, "without a terminal it prints once")

screen = Screen("out.trace")
screen.picture(shows(100), "100 blocks")
program.turn()
lines = screen.picture(shows(200), "200 blocks")
check(lines and re.match(r"out\.trace\.live: recording, ", lines[0]), f"what it shows: {lines[:1]}")
screen.key("t")
screen.picture(lambda lines: any(line.endswith("  THREAD") for line in lines), "threads")
screen.key("d")
screen.picture(lambda lines: any(line.endswith("  DEVICE") for line in lines), "devices")
screen.key("h")
screen.picture(shows(200), "holders")
screen.key("s")
screen.picture(lambda lines: any("sort (by peak)" in line for line in lines), "another order")
screen.resize(40, 8)
lines = screen.picture(lambda lines: max(map(len, lines)) == 40, "40 columns")
check(len(lines) <= 7, f"no more lines than there are: {len(lines)}")
screen.resize(9, 2)
lines = screen.picture(lambda lines: max(map(len, lines)) == 9, "9 columns")
check(len(lines) == 1, f"one line and the cursor's: {lines}")
screen.key("q")
screen.end(0, "q")

screen = Screen(str(program.pid))
screen.picture(shows(200), "200 blocks of a process")
screen.key("\x03")
screen.end(-signal.SIGINT, "Ctrl-C")

screen = Screen("out.trace.live")
screen.picture(shows(200), "200 blocks")
screen.key("\x1a")  # Ctrl-Z: the shell has the screen until we go on
while b"\033[?1049l" not in screen.bytes:
    screen.read()
while open(f"/proc/{screen.run.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
    pass
os.kill(screen.run.pid, signal.SIGCONT)
screen.bytes = b""
screen.picture(shows(200), "200 blocks again")

# A copy as a crash would leave it, with a chunk damaged.
with open("out.trace.live", "rb") as file:
    copied = bytearray(file.read())
program.turn()
program.end()
lines = screen.picture(lambda lines: lines and ": ended, " in lines[0], "the end")
check(shows(300)(lines), f"what it wrote last is counted: {lines}")
screen.key("q")
screen.end(0, "q after the end")

facts, row = holder("out.trace")
check(facts["state"] == "trace" and row["at_peak_bytes"] == 300 * SIZE, f"the finished trace: {facts['state']} {row}")

copied[69632:69640] = b"no chunk"  # the first of events; definitions come before
with open("damaged.trace", "wb") as file:
    file.write(copied)
done = top("damaged.trace")
check(done.returncode == 0 and "hold no chunk" in done.stderr and ": ended," in done.stdout, f"damage is told: {done.stderr} {done.stdout}")
with open("cut.trace", "wb") as file:
    file.write(copied[:20])
done = top("cut.trace")
check(done.returncode == 3 and "no trace" in done.stderr, f"a trace without its header: {done.stderr}")

done = top(str(os.getpid()))
check(done.returncode == 1 and "berth record" in done.stderr, f"a process that is not recorded: {done.stderr}")
done = top("999999999")
check(done.returncode == 2 and "there is no process" in done.stderr, f"no process: {done.stderr}")
done = top("nothing.trace")
check(done.returncode == 4 and "nothing.trace: No such file" in done.stderr, f"no file: {done.stderr}")
finish()
