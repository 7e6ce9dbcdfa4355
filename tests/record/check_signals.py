"""check_signals.py BERTH SUBJECT: a program that is recorded gets what its terminal sends once, and what berth is sent as well."""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, subject = paths[:2]


def start(what):
    """berth record, in front on a terminal of ours. Our end, and the process when its program is ready."""
    mine, other = pty.openpty()
    run = subprocess.Popen([berth, "record", "-q", "-o", "out.trace", "--", subject, what], stdin=other, stdout=subprocess.PIPE, text=True,
                           start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(other)
    check(run.stdout.readline() == "ready\n", "it runs")
    return mine, run


# berth stands still until the program has had its own, so that another one would come after it; that berth goes on is a signal too.
mine, run = start("signals")
said = []
for send in (lambda: os.write(mine, b"\x03"), lambda: os.write(mine, b"\x1c"),
             lambda: fcntl.ioctl(mine, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 77, 0, 0))):
    run.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, run.pid, os.WSTOPPED)
    send()
    said.append(run.stdout.readline())
    run.send_signal(signal.SIGCONT)
    while said[-1] not in (f"signal {signal.SIGCONT:d}\n", ""):
        said.append(run.stdout.readline())
for number in (signal.SIGINT, signal.SIGUSR2):
    run.send_signal(number)
    said.append(run.stdout.readline())
said += run.stdout.readlines()
wanted = [signal.SIGINT, signal.SIGCONT, signal.SIGQUIT, signal.SIGCONT, signal.SIGWINCH, signal.SIGCONT, signal.SIGINT, signal.SIGUSR2]
check(said == [f"signal {number:d}\n" for number in wanted], f"each signal comes once: {said}")
check(run.wait(timeout=60) == 0, "and the program ends as it wants to")
os.close(mine)

# A terminal that goes is told to the leader of its session alone, which is berth where a terminal was opened for it.
mine, run = start("term")
os.close(mine)
check(run.wait(timeout=60) == 128 + signal.SIGHUP, f"the program hears of it: {run.returncode}")
check(os.path.exists("out.trace"), "and its trace is kept")
finish()
