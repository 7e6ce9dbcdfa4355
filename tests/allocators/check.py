"""check.py BERTH WATCHING CRASHING [--sanitized]: drives random recordings with several threads and blocks freed elsewhere through an
allocator that watches, and compares what it saw with the recording; then what the verb says of Berth's stacks, of allocators that refuse or
crash, and its picture."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

berth, watching, crashing = sys.argv[1:4]
sanitized = "--sanitized" in sys.argv
work = tempfile.TemporaryDirectory()


def path_of(name):
    return os.path.join(work.name, name)


def write_log(name, seed, threads, steps, least, most):
    """An RMM log: who allocates and who frees is drawn at random. Its truth: allocations, frees, frees elsewhere, threads, bytes, peak."""
    r, live, lines = random.Random(seed), [], ["Thread,Time,Action,Pointer,Size,Stream"]
    truth = dict(allocations=0, frees=0, foreign=0, bytes=0, peak=0)
    now, seen = 0, set()
    for step in range(steps):
        thread = step % threads if step < threads else r.randrange(threads)
        seen.add(thread)
        time = f"10:{step // 60000000:02}:{step // 1000000 % 60:02}.{step % 1000000:06}"
        if live and (len(live) > 40 or r.random() < 0.45):
            address, size, by = live.pop(r.randrange(len(live)))
            lines.append(f"{thread + 1},{time},free,{address:#x},{size},0x0")
            truth["frees"] += 1
            truth["foreign"] += by != thread
            now -= size
        else:
            address, size = 0x1000000 + step * 0x1000000, r.randint(least, most)
            live.append((address, size, thread))
            lines.append(f"{thread + 1},{time},allocate,{address:#x},{size},0x0")
            truth["allocations"] += 1
            truth["bytes"] += size
            now += size
        truth["peak"] = max(truth["peak"], now)
    truth["threads"] = len(seen)
    with open(path_of(name), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path_of(name), truth


def run(*words, code=0, **more):
    done = subprocess.run([berth, "bench-allocators", *words], capture_output=True, text=True, timeout=300, check=False, **more)
    assert done.returncode == code, f"{words} exits {done.returncode}, not {code}: {done.stdout}{done.stderr}"
    return done


def answer(*words, code=0, **more):
    done = run(*words, "--json", code=code, **more)
    said = json.loads(done.stdout)
    assert said["schema"] == 1
    return said, {each["name"]: each for each in said["allocators"]}


def check_watched(threads, steps):
    log, truth = write_log("log.csv", threads, threads, steps, 100000, 140000)
    figures = path_of("figures")
    with open(figures, "wb") as file:
        file.write(bytes(4096))
    environment = dict(os.environ, WATCHING_FILE=figures, BERTH_CONF="limit=1", LD_PRELOAD="")
    said, rows = answer(log, "-a", watching, "--runs", "1", "--no-calls", env=environment)
    with open(figures, "rb") as file:
        allocations, frees, foreign, untouched, twice, size, seen = struct.unpack("7Q", file.read(56))
    assert said["threads"] == truth["threads"] == threads and said["live_peak"] == truth["peak"]
    assert (allocations, frees, size) == (truth["allocations"], truth["frees"], truth["bytes"]), (allocations, frees, truth)
    assert untouched == 0 and twice == 0, (untouched, twice)
    if threads <= 256:
        assert (foreign, seen) == (truth["foreign"], threads), (foreign, seen, truth)
    else:
        assert seen == said["lanes"] == 256
    row = rows[os.path.basename(watching)]
    assert row["kind"] == "library" and row["runs"] == 1 and row["refused"] == 0 and row["system_calls"] is None
    # Blocks are never given back there: all their pages become resident, once.
    assert row["resident_bytes"] >= truth["bytes"], (row, truth)
    assert said["not_counted"] == "--no-calls"


def check_calls():
    """The watching allocator asks for a mapping for each block and for the thread at each allocation and free."""
    log, truth = write_log("calls.csv", 5, 3, 2000, 100000, 120000)
    said, rows = answer(log, "-a", watching, "--runs", "1")
    if said["not_counted"]:
        print("not counted here:", said["not_counted"])
        return
    row, driver = rows[os.path.basename(watching)], rows["the driver alone"]
    assert row["memory_calls"] >= truth["allocations"] and driver["memory_calls"] == 0, (row, driver)
    asked = 2 * truth["allocations"] + truth["frees"]
    assert asked <= row["system_calls"] <= asked + 200, (asked, row)
    assert driver["system_calls"] <= 200, driver


def check_berth():
    log, truth = write_log("small.csv", 9, 4, 20000, 1, 5000)
    said, rows = answer(log, "-a", "glibc,berth", "-a", "pool=yes;limit=64M,limit=1K", "--runs", "2")
    assert list(rows) == ["the driver alone", "glibc", "berth", "pool=yes;limit=64M", "limit=1K"]
    assert said["events"] == truth["allocations"] + truth["frees"] and said["touched"]
    for name, row in rows.items():
        assert row["runs"] == 2 and row["error"] is None, row
        assert row["seconds_least"] <= row["seconds"] <= row["seconds_most"] and row["cpu_seconds"] >= 0
        assert (row["refused"] > 0) == (name == "limit=1K"), row


def check_manners():
    log, _ = write_log("few.csv", 1, 2, 300, 100000, 100001)
    picture = path_of("picture.svg")
    done = run(log, "-o", picture, "--runs", "1")
    assert "the driver alone" in done.stdout and "glibc" in done.stdout and "berth" in done.stdout
    words = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
    assert "glibc" in words and "peak resident" in words
    assert run(log, "-q", "--runs", "1", "--no-touch").stdout == ""
    untouched = json.loads(run(log, "--runs", "1", "--no-touch", "-a", "glibc", "--json").stdout)
    assert not untouched["touched"] and all(one["waste_percent"] is None for one in untouched["allocators"]), untouched
    with open(log, encoding="utf-8") as file:
        assert "glibc" in run("-", "--runs", "1", stdin=file).stdout
    assert "did you mean 'jemalloc'" in run(log, "-a", "jemaloc", code=2).stderr
    assert "limits" in run(log, "-a", "limits=3", code=2).stderr
    assert "No such file" in run(log, "-a", "/nowhere/lib.so", code=4).stderr
    run(log, "--runs", "0", code=2)
    run(path_of("none.csv"), code=4)


def check_bad_libraries():
    log, _ = write_log("bad.csv", 2, 2, 300, 100000, 100001)
    done = run(log, "-a", crashing + ",glibc", "--runs", "1", code=1)
    assert "Aborted" in done.stdout and "Aborted" in done.stderr and "glibc" in done.stdout, done.stdout + done.stderr
    # A file that is no library, and a library without malloc: not measured under a wrong name.
    no_malloc = subprocess.run(["sh", "-c", f"ldd {berth} | awk '/libm.so/ {{ print $3 }}'"], capture_output=True, text=True,
                               check=True).stdout.strip()
    for library in filter(None, (log, no_malloc)):
        done = run(log, "-a", os.path.join(os.path.dirname(library), os.path.basename(library)), "--runs", "1", code=1)
        assert "malloc is not in it" in done.stderr, done.stderr


if not sanitized:
    for count, length in ((1, 1000), (2, 1500), (5, 3000), (300, 1500)):
        check_watched(count, length)
    check_calls()
    check_bad_libraries()
check_berth()
check_manners()
