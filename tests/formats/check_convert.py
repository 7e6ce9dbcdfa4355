"""berth convert of recordings: the trace is read back, JSON and pickle are loaded with Python's own readers, and what they tell is
compared with what formats_dump tells of the input. With --torch the snapshot also goes through PyTorch's own code."""
import collections, json, os, pickle, random, re, shutil, signal, subprocess, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import folder, paths  # noqa: E402

berth, dump = paths[:2]


def run(*command, code=0, stdin=None):
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", stdin=stdin)
    assert ran.returncode == code, (command, ran.returncode, ran.stderr)
    return ran.stdout + (ran.stderr if code else "")


def path(name):
    return os.path.join(folder, name)


def blocks_of(name):
    """size, begin, end, address, device, label and stack; and the peak."""
    text = run(dump, path(name))
    blocks = [(int(m[1]), int(m[2]), m[3], m[4], m[5], m[6]) for m in
              re.finditer(r"^block (\d+) (\d+) (\w+) \d+ \d+ (\w+) \w+ (\S*) (.*)$", text, re.M)]
    return blocks, int(re.search(r"^peak (\d+)", text, re.M)[1]), text


def make_log(name):
    """Two threads at one time: the order must hold though the clock stands still."""
    r, live, lines = random.Random(3), {}, ["Thread,Time,Action,Pointer,Size,Stream"]
    for i in range(3000):
        a, size = 0x7000 + 256 * r.randrange(200), r.randrange(1, 1 << 22)
        what = f"free,0x{a:x},{live.pop(a)}" if a in live else f"allocate,0x{a:x},{live.setdefault(a, size)}"
        lines.append(f"{r.randrange(3)},10:00:{i // 1000:02}.000001,{what},0x{r.randrange(3)}")
        if i % 500 == 0:
            lines.append(f"0,10:00:{i // 1000:02}.000001,allocate failure,0x0,{1 << 50},0x0")
    open(path(name), "w").write("\n".join(lines) + "\n")


def make_event_log(name):
    r, live = random.Random(4), {}
    lines = ["time_ns,thread,event,address,bytes,alignment,label,stream,status"]
    for i in range(1000):
        a, size = 0x10000 + 4096 * r.randrange(100), r.randrange(1, 4096)
        if a in live:
            lines.append(f"{i},0,free,0x{a:x},{live.pop(a)},0,,,OK")
        else:
            live[a] = size
            lines.append(f"{i},0,allocate,0x{a:x},{size},16,{r.choice(['w', 'äö', chr(34) + 'a,b' + chr(34), ''])},,OK")
    open(path(name), "w").write("\n".join(lines) + "\n")


def make_heaptrack(name):
    r, live = random.Random(5), collections.Counter()
    lines = ["v 10400 3", "X ./app --fast", "s 4 main", "s 6 f(a,b)", "s 5 x.cpp", "s 8 bad \xff\xfe\"\\", "i 10 0 1 3 5",
             "i 20 0 2 3 7 4 3 8", "t 1 0", "t 2 1"] + [f"a {s:x} {s % 3:x}" for s in range(1, 40)]
    for i in range(2000):
        site = r.randrange(39)
        if live[site] and r.random() < 0.6:
            live[site] -= 1
            lines.append(f"- {site:x}")
        else:
            live[site] += 1
            lines.append(f"+ {site:x}")
        if i % 50 == 0:
            lines.append(f"c {i:x}")
    open(path(name), "w", encoding="latin-1").write("\n".join(lines) + "\n")


def check_trace(name):
    run(berth, "convert", path(name), path("out.trace"))
    before, after = blocks_of(name), blocks_of("out.trace")
    assert after[2].startswith("format trace\n") and before[1] == after[1]
    for a, b in zip(before[0], after[0]):
        keep = (0, 1, 2, 4, 5) if a[3] == "0" else range(6)
        assert [a[k] for k in keep] == [b[k] for k in keep], (name, a, b)
    assert len(before[0]) == len(after[0])
    assert re.findall("^process.*", before[2], re.M) == re.findall("^process.*", after[2], re.M)
    moments = [re.findall(r"^moment (\d+) \d+ (\d+)", t[2], re.M) for t in (before, after)]
    assert moments[0] == moments[1]


def check_chrome(name):
    run(berth, "convert", path(name), "-o", path("out.json"))
    events = json.load(open(path("out.json"), encoding="utf-8"))["traceEvents"]
    blocks, peak, text = blocks_of(name)
    begins = {e["id"]: e for e in events if e["ph"] == "b"}
    ends = {e["id"]: e for e in events if e["ph"] == "e"}
    assert [begins[i]["args"]["bytes"] for i in range(len(blocks))] == [b[0] for b in blocks]
    assert sorted(ends) == [i for i, b in enumerate(blocks) if b[2] != "alive"]
    assert all(ends[i]["ts"] >= begins[i]["ts"] and ends[i]["name"] == begins[i]["name"] for i in ends)
    assert max(e["args"]["bytes"] for e in events if e["ph"] == "C") == peak
    assert sum(e["ph"] == "i" for e in events) == text.count("\nmoment ")


def check_snapshot(name):
    run(berth, "convert", path(name), path("out.pickle"))
    snapshot = pickle.load(open(path("out.pickle"), "rb"))
    blocks, peak, text = blocks_of(name)
    live, top = {}, 0
    (trace,) = snapshot["device_traces"]
    for e in trace:
        if e["action"] == "alloc":
            assert e["addr"] not in live
            live[e["addr"]] = e["size"]
            top = max(top, sum(live.values()))
        elif e["action"] == "free_completed":
            assert live.pop(e["addr"]) == e["size"]
        else:
            assert e["action"] in ("free_requested", "oom"), e
    assert top == peak and len([e for e in trace if e["action"] == "alloc"]) == len(blocks)
    stacks = [[f["name"] for f in e["frames"]] for e in trace if e["action"] == "alloc"]
    for names, block in zip(stacks, blocks):
        wanted = [w.rsplit("@", 1)[0] for w in block[5].split("|")[1:]] or ([block[5]] if block[5] else [])
        assert names == [w.replace("\ufffd", "?") for w in wanted], (names, wanted)  # what is no text
    left = {}
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at
            at += b["size"]
            if b["state"] == "active_allocated":
                left[b["address"]] = b["size"]
        assert at == s["address"] + s["total_size"]
    assert left == {a: n for a, n in live.items() if n}
    return snapshot


def check_rows(name):
    run(berth, "convert", path(name), path("out.csv"))
    blocks, peak, _ = blocks_of(name)
    answer = json.loads(run(berth, "plan", path("out.csv"), "--effort", "fast", "--json"))
    assert answer["max_live"] == peak and answer["buffers"] == len(blocks), (answer["max_live"], peak)
    direct = json.loads(run(berth, "plan", path(name), "--effort", "fast", "--json"))
    assert direct["offsets"] == answer["offsets"]
    with open(path(name)) as f:
        piped = json.loads(run(berth, "plan", "-", "--effort", "fast", "--json", stdin=f))
    assert piped["offsets"] == answer["offsets"]
    cat = subprocess.Popen(["cat", path(name)], stdout=subprocess.PIPE)
    piped = json.loads(run(berth, "plan", "-", "--effort", "fast", "--json", stdin=cat.stdout))
    cat.wait()
    assert piped["offsets"] == answer["offsets"]


make_log("rmm.csv")
make_event_log("log.csv")
make_heaptrack("heaptrack")
for name in ("rmm.csv", "log.csv", "heaptrack"):
    check_trace(name)
    check_chrome(name)
    snapshot = check_snapshot(name)
    check_rows(name)
    if "--torch" in sys.argv:
        from torch.cuda import _memory_viz as viz
        stats = viz.stats(snapshot["segments"])  # asserts that blocks fill their segments
        assert "segments" in stats
        print(name, stats.splitlines()[0] if isinstance(stats, str) else stats)

# Segments: what a trace maps stands around the blocks that are in it.
assert "is for --to csv" in run(berth, "convert", path("rmm.csv"), path("x.json"), "--device", "cuda", code=2)
assert "there is no device 'x'" in run(berth, "plan", path("rmm.csv"), "--device", "x", code=2)
run(berth, "convert", path("rmm.csv"), "--device", "cuda", "--to", "csv")
assert "name it with -o" in run(berth, "convert", path("rmm.csv"), "--to", "trace", code=2)
assert "it cannot be written" in run(berth, "convert", path("rmm.csv"), path("nowhere/x.json"), code=4)


def check_ended(number, *words):
    """Ended while it writes, the command takes away what is half written."""
    os.mkdir(path("there"))
    writing = subprocess.Popen([berth, *words])
    while writing.poll() is None and not os.listdir(path("there")):
        pass
    writing.send_signal(number)
    code = writing.wait()
    assert code in (-number, 0), code  # 0: it was faster
    assert os.listdir(path("there")) == ([] if code else [os.path.basename(words[-1])]), (words, code, os.listdir(path("there")))
    shutil.rmtree(path("there"))


with open(path("many.csv"), "w") as many:
    many.write("Thread,Time,Action,Pointer,Size,Stream\n")
    for i in range(100000):
        many.write(f"0,{i}.0,allocate,0x{4096 * (i + 1):x},64,0x0\n")
with open(path("rows.csv"), "w") as rows:
    rows.write("id,lower,upper,size\n")
    for i in range(200000):
        rows.write(f"{i},{i},{i + 2},64\n")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    check_ended(number, "convert", path("many.csv"), path("there/many.json"))
    check_ended(number, "convert", path("rows.csv"), path("there/rows.csv"))
    check_ended(number, "plan", "--quiet", path("rows.csv"), "-o", path("there/planned.csv"))
