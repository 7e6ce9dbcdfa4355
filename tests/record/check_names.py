"""check_names.py BERTH SUBJECT READ FIRST OTHER: which names a trace gives to its call stacks, where files are not what they were."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, subject, read, first, other = paths[:5]
NOTE = b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0"  # lengths of name and id, kind, name; the id comes next


def record(*words, options=()):
    subprocess.run([berth, "record", "-q", "-o", "out.trace", *options, "--", *words], check=True, timeout=60)


def names():
    """Of the frames of each block that a library took, from the innermost outward."""
    lines = subprocess.run([read, "out.trace"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [line.split()[6:] for line in lines if line.startswith("block ") and line.split()[3] == "4321"]


# One where the other was, with the same stack above: each block has the name of who took it. Neither is loaded any more at the end.
record(subject, "turns", first, other, first)
told = names()
for frames, wanted in zip(told, ("first_turn", "other_turn", "first_turn")):
    check(frames[:3] == ["inlined_callee", wanted, "run"], f"a library that was unloaded, and what is inlined in it: {frames}")
check(len(told) == 3, f"each has its block: {told}")

# Some compilers, clang and rustc among them, write no index of the units of debug information.
done = subprocess.run(["objcopy", "--remove-section", ".debug_aranges", first, "bare.so"])
record(subject, "turns", "./bare.so")
told = names()
check(done.returncode == 0 and len(told) == 1 and told[0][:3] == ["inlined_callee", "first_turn", "run"], f"a library without that index: {told}")

# A file that has been replaced since gives no names: its functions may stand anywhere.
with open(first, "rb") as file:
    whole = file.read()
place = whole.find(NOTE)
check(place > 0 and whole.find(NOTE, place + 1) < 0, "the library has one id")
identity = place + len(NOTE)
changes = {"the same": (identity, b""), "another id": (identity, bytes([whole[identity] ^ 1])), "a shorter id": (place + 4, b"\x08"),
           "no id": (place + 8, b"\x7f")}
for what, (at, new) in changes.items():
    shutil.copy(first, "loaded.so")
    with open("new.so", "wb") as file:
        file.write(whole[:at] + new + whole[at + len(new):])
    record("sh", "-c", '"$0" turns ./loaded.so && mv new.so loaded.so', subject)
    told = names()
    check(len(told) == 1 and ("run" in told[0]) == (what == "the same"), f"{what}: {told}")

# Without debug information the symbol table tells: of the functions around an address the one that holds it.
done = subprocess.run(["strip", "--strip-debug", "-o", "plain.so", first])
record(subject, "turns", "./plain.so")
told = names()
check(done.returncode == 0 and len(told) == 1 and told[0][:2] == ["first_turn", "run"], f"a library without debug information: {told}")

# The path of a library is the trace's, which may be anybody's, and what stands there now may be a pipe, which has no end.
for what, script, words in (("while packing", "true", ["convert", "out.trace", "-o", "again.trace"]),
                            ("in what a crash has left", "kill -9 $PPID", ["top", "out.trace.live"])):
    shutil.copy(first, "loaded.so")
    try:
        subprocess.run([berth, "record", "-q", "-o", "out.trace", "--", "sh", "-c",
                        '"$0" turns ./loaded.so; rm loaded.so; mkfifo loaded.so; ' + script, subject], timeout=20)
        done = subprocess.run([berth, *words], capture_output=True, text=True, timeout=20)
        check(done.returncode == 0 and (words[0] != "top" or "loaded.so+0x" in done.stdout), f"a pipe in a library's place, {what}: {done}")
    except subprocess.TimeoutExpired:
        check(False, f"a pipe in a library's place is not waited for, {what}")
    os.remove("loaded.so")
finish()
