"""Files of other tools, read by Berth's readers (formats_dump) and by the short second readings below. Random files each time
from the same seeds; and what Debian's valgrind and heaptrack write, where they are installed."""
import csv, os, random, re, shutil, subprocess, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import folder, paths  # noqa: E402

(dump,) = paths


def ours(path, fails=None):
    ran = subprocess.run([dump, path], capture_output=True, text=True)
    if fails:
        assert ran.returncode == 1 and fails in ran.stderr, (ran.returncode, ran.stderr)
        return None
    assert ran.returncode == 0, (path, ran.stderr)
    return ran.stdout


def write(name, text):
    path = os.path.join(folder, name)
    with open(path, "w", newline="") as f:
        f.write(text)
    return path


class History:
    """The second reading: blocks in their order, ends filled in later."""

    def __init__(self):
        self.blocks, self.live, self.events, self.moments = [], {}, 0, []
        self.unknown = self.lost = self.now = self.peak = self.time = 0

    def free(self, key, time):
        if key not in self.live:
            self.unknown += 1
            return
        self.time = max(self.time, time)
        b = self.live.pop(key)
        b["end"], b["end_ns"] = self.events, time
        self.events += 1
        self.now -= b["size"]

    def alloc(self, key, size, time, address=0, stream=0, device="", label=""):
        if key in self.live:
            self.lost += 1
            self.free(key, time)
        self.time = max(self.time, time)
        b = dict(size=size, begin=self.events, end=None, begin_ns=time, address=address, stream=stream, device=device, label=label)
        self.events += 1
        self.live[key] = b
        self.blocks.append(b)
        self.now += size
        self.peak = max(self.peak, self.now)

    def moment(self, size, time):
        self.time = max(self.time, time)
        self.moments.append((size, time, self.events))

    def lines(self):
        for b in self.blocks:
            end = "alive" if b["end"] is None else b["end"]
            end_ns = self.time if b["end"] is None else b["end_ns"]
            yield (f"block {b['size']} {b['begin']} {end} {b['begin_ns']} {end_ns} {b['address']:x} {b['stream']:x} "
                   f"{b['device']} {b['label']}")
        for size, time, before in self.moments:
            yield f"moment {size} {time} {before}"
        yield f"peak {self.peak}"
        yield f"unknown {self.unknown} lost {self.lost}"


def compare(path, second, format_name, stacks=False):
    text = ours(path)
    got = [l for l in text.splitlines() if re.match("block|moment|peak|unknown", l)]
    if not stacks:
        got = [l.split("|")[0] for l in got]
    wanted = list(second.lines())
    assert text.startswith(f"format {format_name}\n"), text[:80]
    for a, b in zip(got, wanted):
        assert a == b, f"{path}: ours\n  {a}\nsecond reading\n  {b}"
    assert len(got) == len(wanted), (path, len(got), len(wanted))
    return text


# ---- Our event log

def event_log(seed):
    r = random.Random(seed)
    rows, live, time = [], {}, 10 ** 12
    labels = ["", "weights", "a,b", 'say "x"', "ä"]
    for _ in range(2000):
        time += r.randrange(0, 5000)
        late = r.choice([0, 0, 0, 700])
        thread, what = r.randrange(4), r.random()
        free = [a for a in range(0x1000, 0x40000, 0x1000) if a not in live]
        stream = r.choice(["", "0x77"])
        if what < 0.5 and free:
            a, size = r.choice(free), r.randrange(0, 1 << 20)
            live[a] = size
            rows.append([time - late, thread, "allocate", hex(a), size, 256, r.choice(labels), stream, "OK"])
        elif what < 0.55:
            rows.append([time, thread, "allocate", "", 1 << 40, 1, r.choice(labels), stream, "OUT_OF_DEVICE_MEMORY"])
        elif what < 0.65 and live and free:
            old, new = r.choice(sorted(live)), r.choice(free)
            size = live[new] = r.randrange(1, 1 << 20)
            rows.append([time, thread, "reallocate_from", hex(old), live.pop(old), 0, "", stream, "OK"])
            rows.append([time, thread, "reallocate", hex(new), size, 16, r.choice(labels), stream, "OK"])
        elif what < 0.7 and live:
            rows.append([time, thread, "record_use", hex(r.choice(sorted(live))), 0, 0, "", "0x77", "OK"])
        elif live:
            a = r.choice(sorted(live))
            rows.append([time, thread, "free", hex(a), live.pop(a), 0, "", stream, "OK"])
    rows.append([time, 0, "free", "0x99", 1, 0, "", "", "OK"])
    path = os.path.join(folder, "log.csv")
    with open(path, "w", newline="") as f:
        f.write("time_ns,thread,event,address,bytes,alignment,label,stream,status\n")
        csv.writer(f, lineterminator="\n").writerows(rows)
    return path


def read_event_log(path):
    h, time = History(), 0
    for row in csv.DictReader(open(path, newline="")):
        time = max(time, int(row["time_ns"]))
        a, size = int(row["address"] or "0", 16), int(row["bytes"])
        if row["event"] in ("allocate", "reallocate") and row["status"] == "OK":
            h.alloc(a, size, time, a, int(row["stream"] or "0", 16), "", row["label"])
        elif row["event"] in ("allocate", "reallocate"):
            h.moment(size, time)
        elif row["event"] in ("free", "reallocate_from"):
            h.free(a, time)
    return h


for seed in range(3):
    path = event_log(seed)
    compare(path, read_event_log(path), "event log")
text = open(path).read()
assert "notice 2 lines are left out; the first, line 2: its event is not known" in ours(
    write("bad.csv", text.split("\n")[0] + "\n1,0,dance,0x1,1,1,,,OK\nshort\n3,0,allocate,0x5,77,1,,,OK\n4,0,al"))
revived = ours(write("failed.csv", text.split("\n")[0] + "\n1,0,allocate,0x10,64,1,w,,OK\n2,0,free,0x10,64,0,,,OK\n"
                     "3,0,free_failed,0x10,64,0,,,INVALID_ARGUMENT\n"))
assert "block 64 2 alive 3 3 10 0  w" in revived, revived
# A resize that is refused, while another thread frees: the block goes on, and the refusal is told.
resized = ours(write("resized.csv", text.split("\n")[0] + "\n1,0,allocate,0x10,64,1,w,,OK\n1,1,allocate,0x20,8,1,,,OK\n"
                     "2,0,reallocate_from,0x10,0,0,,,OK\n2,1,free,0x20,8,0,,,OK\n"
                     "3,0,free_failed,0x10,0,0,,,OUT_OF_HOST_MEMORY\n3,0,reallocate,,4096,1,,,OUT_OF_HOST_MEMORY\n"))
assert "block 64 4 alive 3 3 10 0  w" in resized and "4096" in resized, resized

# ---- RMM

def rmm_log(seed, of_day, prefix):
    r = random.Random(seed)
    lines, live = ["Thread,Time,Action,Pointer,Size,Stream"], {}
    us = (23 * 3600 + 59 * 60 + 58) * 10 ** 6 if of_day else 1634567890 * 10 ** 6
    for _ in range(2000):
        us += r.randrange(0, 3000)
        s, f = divmod(us, 10 ** 6)
        when = f"{s // 3600 % 24:02}:{s // 60 % 60:02}:{s % 60:02}.{f:06}" if of_day else f"{s}.{f:06}"
        thread = r.choice([140573312345856, 17, 18])
        a, size = 0x7f8a40000000 + 256 * r.randrange(300), r.randrange(1, 1 << 30)
        if r.random() < 0.02:
            lines.append(f"{thread},{when},allocate failure,{prefix}0,{size},{prefix}2")
        elif a in live:
            lines.append(f"{thread},{when},{'free' if of_day else 'deallocate'},{prefix}{a:x},{live.pop(a)},{prefix}2")
        else:
            live[a] = size
            lines.append(f"{thread},{when},allocate,{prefix}{a:x},{size},{prefix}2")
    return write("rmm.csv", "\n".join(lines) + "\n")


def read_rmm(path):
    h, days, last = History(), 0, 0
    for row in csv.DictReader(open(path)):
        if ":" in row["Time"]:
            hours, minutes, seconds = row["Time"].split(":")
            time = (int(hours) * 3600 + int(minutes) * 60) * 10 ** 9 + round(float(seconds) * 10 ** 6) * 1000
            if time + days * 86400 * 10 ** 9 + 43200 * 10 ** 9 < last:
                days += 1
            time += days * 86400 * 10 ** 9
        else:
            s, f = row["Time"].split(".")
            time = int(s) * 10 ** 9 + int(f) * 1000
        last = time
        a, size, stream = int(row["Pointer"], 16), int(row["Size"]), int(row["Stream"], 16)
        if row["Action"] == "allocate":
            h.alloc(a, size, time, a, stream, "cuda")
        elif row["Action"] in ("free", "deallocate"):
            h.free(a, time)
        else:
            h.moment(size, time)
    return h


for of_day in (True, False):
    for prefix in ("0x", ""):
        path = rmm_log(7, of_day, prefix)
        compare(path, read_rmm(path), "RMM log")

# ---- heaptrack

def heaptrack_file(seed, version):
    r = random.Random(seed)
    lines, texts, ips, traces, sites, live = [f"v 10400 {version:x}", "X ./p --x"], 0, 0, 0, [], []
    ms = 0
    for _ in range(3000):
        what = r.random()
        if what < 0.05 or not texts:
            t = r.choice(["main", "f(int, char)", "/usr/lib/libx.so", "a b c"]) + str(texts)
            lines.append(f"s {len(t):x} {t}" if version >= 3 else f"s {t}")
            texts += 1
        elif what < 0.1 or not ips:
            frames = [f"{r.randint(1, texts):x} {r.randint(0, texts):x} {r.randrange(500):x}" for _ in range(r.randrange(4))]
            lines.append(" ".join([f"i {r.randrange(1 << 47):x} {r.randint(0, texts):x}"] + frames))
            ips += 1
        elif what < 0.15 or not traces:
            lines.append(f"t {r.randint(1, ips):x} {r.randint(0, traces):x}")
            traces += 1
        elif what < 0.2 or not sites:
            sites.append(0)
            lines.append(f"a {r.randrange(1 << 20):x} {r.randint(0, traces):x}")
        elif what < 0.25:
            ms += r.randrange(20)
            lines += [f"c {ms:x}", f"R {ms:x}"]
        elif what < 0.7 or not live:
            live.append(r.randrange(len(sites)))
            lines.append(f"+ {live[-1]:x}")
        else:
            lines.append(f"- {live.pop(r.randrange(len(live))):x}")
    return write("heaptrack.txt", "\n".join(lines) + "\n")


def read_heaptrack(path):
    h, time, sized = History(), 0, False
    texts, ips, traces, sites = [""], [None], [""], []
    for line in open(path):
        kind, rest = line[0], line[2:].rstrip("\n")
        words = rest.split()
        if kind == "v":
            sized = int(words[1], 16) >= 3
        elif kind == "s":
            texts.append(rest.split(" ", 1)[1] if sized else rest)
        elif kind == "i":
            n = [int(w, 16) for w in words]
            frames = [f"|{texts[n[i]]}@{texts[n[i + 1]]}:{n[i + 2]}" for i in range(2, len(n) - 2, 3)]
            frames += [f"|{texts[n[-1]]}@:0"] if len(n) % 3 == 0 else []
            ips.append("".join(frames) or "|@:0")
        elif kind == "t":
            traces.append(ips[int(words[0], 16)] + traces[int(words[1], 16)])
        elif kind == "a":
            sites.append((int(words[0], 16), traces[int(words[1], 16)], []))
        elif kind == "c":
            time = int(words[0], 16) * 10 ** 6
        elif kind == "+":
            size, stack, live = sites[int(words[0], 16)]
            live.append(len(h.blocks))
            h.alloc(len(h.blocks), size, time, label=stack)
        elif kind == "-":
            live = sites[int(words[0], 16)][2]
            if live:
                h.free(live.pop(), time)
            else:
                h.unknown += 1
    return h


for version in (1, 2, 3):
    path = heaptrack_file(version, version)
    assert "process ./p --x" in compare(path, read_heaptrack(path), "heaptrack", stacks=True)
ours(write("raw", "v 10400 3\nx /usr/bin/p\nX ./p\n"), fails="heaptrack --interpret")
if shutil.which("zstd"):
    packed = path + ".zst"
    subprocess.run(["zstd", "-q", "-f", path, "-o", packed], check=True)
    ran = subprocess.run([dump, packed], capture_output=True, text=True)
    if ran.returncode:  # a build without zstd says what to do
        assert "unzstd" in ran.stderr, ran.stderr
    else:
        assert ran.stdout == ours(path)
        cut = write("cut.zst", "")
        data = open(packed, "rb").read()
        open(cut, "wb").write(data[:len(data) // 2] + b"damage" + data[len(data) // 2:])
        assert "notice the file cannot be read to its end" in ours(cut)

# ---- massif

def massif_file(seed):
    r = random.Random(seed)
    lines, time = ["desc: --x", "cmd: ./p", "time_unit: " + r.choice(["i", "ms", "B"])], 0

    def node(depth, total, name):
        kids, left = [], total
        while depth < 5 and left and r.random() < 0.7 and len(kids) < 4:
            part = r.randint(1, left)
            kids.append(part)
            left -= part
        out = [" " * depth + f"n{len(kids)}: {total} {name}"]
        for i, part in enumerate(kids):
            out += node(depth + 1, part, f"0x{0x1000 + depth * 16 + i:X}: f{depth}_{i} (a.c:{i + 1})")
        return out

    for i in range(40):
        time += r.randrange(1000)
        heap = r.randrange(1 << 20) if i else 0
        lines += ["#-----------", f"snapshot={i}", "#-----------", f"time={time}", f"mem_heap_B={heap}",
                  f"mem_heap_extra_B={heap // 50}", f"mem_stacks_B={r.choice([0, 512])}"]
        if heap and r.random() < 0.4:
            lines += ["heap_tree=" + r.choice(["detailed", "peak"])] + node(0, heap, "(heap allocation functions) malloc")
        else:
            lines.append("heap_tree=empty")
    return write("massif.out", "\n".join(lines) + "\n")


def read_massif(path):
    """Bytes at each moment, and by outermost-last stack where there is a tree."""
    moments, unit = [], 1
    for line in open(path):
        key, _, value = line.strip().partition("=")
        if line.startswith("time_unit: ms"):
            unit = 10 ** 6
        elif key == "snapshot":
            moments.append({"stacks": {}, "path": []})
        elif key == "time":
            moments[-1]["time"] = int(value) * unit
        elif key.startswith("mem_"):
            moments[-1][key] = int(value)
        elif re.match(" +n", line):
            m = re.match(r"( +)n(\d+): (\d+) (?:0x[0-9A-F]+: )?(.*)", line)
            depth, total, rest = len(m[1]), int(m[3]), m[4]
            place = re.match(r"(.*) \((?!in )([^()]*):(\d+)\)$", rest)
            module = re.match(r"(.*) \(in .*\)$", rest)
            name = f"|{place[1]}@{place[2]}:{place[3]}" if place else f"|{module[1]}@:0" if module else f"|{rest}@:0"
            name = name.replace("|???@", "|@")
            path_now = moments[-1]["path"][:depth - 1]
            if path_now:
                moments[-1]["stacks"]["".join(path_now)] -= total
            path_now.append(name)
            moments[-1]["path"] = path_now
            stack = "".join(path_now)
            moments[-1]["stacks"][stack] = moments[-1]["stacks"].get(stack, 0) + total
    return moments


def compare_massif(path):
    text, moments = ours(path), read_massif(path)
    assert text.startswith("format massif\n") and "massif keeps figures" in text
    blocks = []
    for line in text.splitlines():
        m = re.match(r"block (\d+) (\d+) (\w+) (\d+) (\d+) 0 0  ([^|]*)(.*)", line)
        if m:
            blocks.append((int(m[1]), int(m[4]), None if m[3] == "alive" else int(m[5]), m[6], m[7]))
    for k, moment in enumerate(moments):
        if k + 1 < len(moments) and moments[k + 1]["time"] == moment["time"]:
            continue  # the later one of two at the same time is what is left
        alive = [b for b in blocks if b[1] <= moment["time"] and (b[2] is None or b[2] > moment["time"])]
        total = moment["mem_heap_B"] + moment["mem_heap_extra_B"] + moment["mem_stacks_B"]
        assert sum(b[0] for b in alive) == total, (path, k, sum(b[0] for b in alive), total)
        by_stack = {}
        for b in alive:
            if b[4]:
                by_stack[b[4]] = by_stack.get(b[4], 0) + b[0]
        assert by_stack == {s: n for s, n in moment["stacks"].items() if n}, (path, k)


for seed in range(4):
    compare_massif(massif_file(seed))

# ---- What the tools themselves write

program = [sys.executable, "-S", "-c", "x = [bytes(1000 + i) for i in range(3000)]; del x[::2]"]
if shutil.which("valgrind"):
    path = os.path.join(folder, "real.massif")
    ran = subprocess.run(["valgrind", "--tool=massif", f"--massif-out-file={path}", "--stacks=no", "/bin/ls", "/"],
                         capture_output=True)
    if ran.returncode == 0:
        compare_massif(path)
        print("massif: compared")
if shutil.which("heaptrack") and shutil.which("zstd") and "LD_PRELOAD" not in os.environ:
    base = os.path.join(folder, "real")
    ran = subprocess.run(["heaptrack", "-o", base] + program, capture_output=True, text=True)
    if ran.returncode == 0 and os.path.exists(base + ".zst"):
        plain = base + ".txt"
        subprocess.run(["zstd", "-dqf", base + ".zst", "-o", plain], check=True)
        compare(plain, read_heaptrack(plain), "heaptrack", stacks=True)
        print("heaptrack: compared")
