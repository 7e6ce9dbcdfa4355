"""What `berth view --json` writes, read by docs/view-format.md alone and compared with where it came from.

usage: check_document.py BERTH LIVE
"""
import base64
import csv
import io
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

berth, live_program = sys.argv[1:]
HEADER = "time_ns,thread,event,address,bytes,alignment,label,stream,status\n"


def run(*words, **more):
    done = subprocess.run([berth, *words], capture_output=True, check=False, **more)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def numbers(text, differences=False):
    """A column."""
    out, n, shift, last = [], 0, 0, 0
    for byte in base64.b64decode(text):
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if differences:
                last += -(n + 1) // 2 if n % 2 else n // 2
            out.append(last if differences else n)
            n = shift = 0
    return out


def unfold(space, at):
    for address, size, start in space["regions"]:
        if start <= at < start + size:
            return int(address, 16) + at - start
    raise AssertionError(f"{at} is in no region")


def blocks_of(doc, space):
    columns = space["columns"]
    begin, life = numbers(columns["begin"], True), numbers(columns["life"])
    size = numbers(columns["size"])
    label = numbers(columns["label"]) if "label" in columns else [0] * len(size)
    address = [unfold(space, at) for at in numbers(columns["address"], True)] if "address" in columns else [None] * len(size)
    planned = numbers(columns["planned"], True) if "planned" in columns else [None] * len(size)
    return [{"begin": b, "end": b + n if n else doc["events"], "stays": not n, "size": s, "label": doc["texts"][t], "address": a, "planned": p}
            for b, n, s, t, a, p in zip(begin, life, size, label, address, planned)]


def check_plan(space, blocks, alignment):
    """No two that live together overlap; what the plan says of itself is so."""
    assert max(b["planned"] + b["size"] for b in blocks) == space["plan"]["peak_bytes"]
    assert space["peak"]["bytes"] <= space["bound_bytes"] <= space["plan"]["peak_bytes"]
    for k, a in enumerate(blocks):
        assert a["planned"] % alignment == 0
        for b in blocks[:k]:
            if a["begin"] < b["end"] and b["begin"] < a["end"]:
                assert a["planned"] + a["size"] <= b["planned"] or b["planned"] + b["size"] <= a["planned"], (a, b)


def check_curve(doc, space, live):
    high, below = numbers(space["curve"]["high"], True), numbers(space["curve"]["below"])
    buckets = space["curve"]["buckets"]
    assert len(high) == len(below) == buckets
    parts = [[] for _ in range(buckets)]
    for event, value in enumerate(live):
        parts[event * buckets // doc["events"]].append(value)
    assert [max(p) for p in parts] == high
    assert [h - b for h, b in zip(high, below)] == [min(p) for p in parts]
    assert space["peak"]["bytes"] == max(live) and space["peak"]["event"] == live.index(max(live))


def make_log(seed, count):
    """An event log with blocks in three far corners of the addresses, and what should be read from it."""
    rng, text, alive, blocks, live, total = random.Random(seed), [HEADER], [], [], [], 0
    corners, event = [0x1000, 0x5555_0000_0000, 0x7FFF_FF00_0000], 0
    while event < count:
        time = 1000 + event * 7
        if alive and rng.random() < 0.47:
            block = alive.pop(rng.randrange(len(alive)))
            block["end"], total = event, total - block["size"]
            text.append(f"{time},1,free,{block['address']},0,0,,0,OK\n")
        else:
            block = {"begin": event, "end": count, "size": rng.choice([1, 16, 100, 4096, 70000]), "label": rng.choice(["", "a", "<b>"])}
            block["address"] = rng.choice(corners) + rng.randrange(64) * 65536 * 2
            if any(b["address"] == block["address"] for b in alive):
                continue
            alive.append(block)
            blocks.append(block)
            total += block["size"]
            text.append(f"{time},1,allocate,{block['address']},{block['size']},16,{block['label']},0,OK\n")
        live.append(total)
        event += 1
    return "".join(text), blocks, live


def check_logs(folder):
    path = os.path.join(folder, "events.csv")
    for seed in range(6):
        text, expected, live = make_log(seed, 40 + seed * 150)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        doc = json.loads(run("view", path, "--json"))
        assert (doc["format"], doc["version"], doc["has_times"], doc["events"]) == ("berth-view", 1, True, len(live))
        (space,) = doc["spaces"]
        blocks = blocks_of(doc, space)
        assert [{k: b[k] for k in ("begin", "end", "size", "label", "address")} for b in blocks] == \
               [{k: b[k] for k in ("begin", "end", "size", "label", "address")} for b in expected]
        assert space["blocks"] == space["kept"] == len(expected) and "left_out" not in space
        assert 3 <= len(space["regions"]) <= 24 and space["extent_bytes"] < 1 << 26, space["regions"]
        check_curve(doc, space, live)
        check_plan(space, blocks, 16)
        times = doc["times"]
        passed = numbers(times["passed"])
        assert [int(times["first"]) + sum(passed[:k + 1]) for k in range(len(passed))] == [1000 + 7 * e for e in numbers(times["event"], True)]
        check_less(path, doc, live, blocks)


def check_less(path, whole, live, blocks):
    """With less room the figures stay, and so do all that make the peak."""
    doc = json.loads(run("view", path, "--json", "--no-plan", "--detail", "900"))
    (space,) = doc["spaces"]
    check_curve(doc, space, live)
    assert space["plan"] is None and "planned" not in space["columns"]
    if space["kept"] == space["blocks"]:
        return
    left, kept = space["left_out"], blocks_of(doc, space)
    assert left["blocks"] + space["kept"] == space["blocks"] == len(blocks) and len(kept) == space["kept"]
    assert len(base64.b64decode(left["cells"])) == left["across"] * left["up"] and any(base64.b64decode(left["cells"]))
    peak = whole["spaces"][0]["peak"]["event"]
    at_peak = [b for b in blocks if b["begin"] <= peak < b["end"]]
    if len(at_peak) < space["kept"]:
        assert all(any(k["begin"] == b["begin"] for k in kept) for b in at_peak)


def check_problems(folder):
    """Alignments, gaps, aliases and pins of a CSV file hold in the plan: berth check proves it."""
    rng = random.Random(3)
    rows = [{"id": f"b{i}", "lower": s, "upper": s + rng.randrange(2, 30), "size": rng.randrange(1, 3000), "alignment": rng.choice([1, 64, 96]),
             "gaps": "", "alias": "", "label": f"name {i}"} for i, s in enumerate(rng.randrange(100) for _ in range(120))]
    for row in rng.sample(rows, 15):
        if row["upper"] - row["lower"] > 4:
            row["gaps"] = f"{row['lower'] + 1}-{row['lower'] + 3}"
    path, planned = os.path.join(folder, "problem.csv"), os.path.join(folder, "planned.csv")
    write(path, rows)
    doc = json.loads(run("view", path, "--json"))
    (space,) = doc["spaces"]
    assert doc["input"] == "problem" and not doc["has_addresses"] and "address" not in space["columns"]
    offsets = {b["label"]: b["planned"] for b in blocks_of(doc, space)}
    write(planned, [dict(row, offset=offsets[row["label"]]) for row in rows])
    run("check", path, planned)
    assert json.loads(run("plan", path, "--effort", "fast", "--json"))["lower_bound"] <= space["plan"]["peak_bytes"]
    from_pipe = json.loads(run("view", "-", "--json", input=open(path, "rb").read()))
    assert from_pipe["spaces"] == doc["spaces"] and from_pipe["name"] == "standard input"
    given = json.loads(run("view", planned, "--json"))
    assert given["input"] == "plan"


def write(path, rows):
    text = io.StringIO()
    out = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.getvalue())


def check_names(folder):
    """No byte of a name can end the script that the document is in, and bytes that are no UTF-8 do no harm."""
    path, page = os.path.join(folder, "names.csv"), os.path.join(folder, "names.html")
    names = [b"</script><script>", b"<!--", b"\xff\xfe\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", "–ü\u2028".encode(), b"\\u003c", b"a" * 400,
             "a\u202eb\u2066c\u200f".encode(), ("ü" * 150 + "end").encode(), b"\xef\xbf\xbe\xef\xbf\xbf"]
    with open(path, "wb") as file:
        file.write(b"id,lower,upper,size\n" + b"".join(b'"%s",0,5,64\n' % name for name in names))
    text = run("view", path, "--json")
    assert not any(c in text for c in b"<>&")
    doc = json.loads(text.decode("utf-8"))
    assert doc["texts"][9] == "a" * 160 + "…" + "a" * 80, doc["texts"][9]
    assert doc["texts"][10] == "a\ufffdb\ufffdc\u200f", "what turns the letters around it is left out"
    assert doc["texts"][11] == "ü" * 80 + "…" + "ü" * 38 + "end", "of a long name the begin and the end are told: " + doc["texts"][11]
    assert doc["texts"][1] == "</script><script>" and doc["texts"][3] == "\ufffd" * 3 and doc["texts"][7] == "–ü\u2028"
    assert doc["texts"][8] == "\\u003c" and len(doc["texts"][9]) < 300
    run("view", path, "-q", "-o", page)
    assert open(page, "rb").read().count(b"</script>") == 2
    picture = run("view", path, "--svg", "-o", "-")
    assert b"<script>" not in picture
    told = [e.text for e in xml.etree.ElementTree.fromstring(picture.decode("utf-8")).iter("{http://www.w3.org/2000/svg}title")]
    wanted = ["</script><script>", "<!--", "\ufffd" * 3, "–ü\u2028", "a\ufffdb\ufffdc\u200f", "\ufffd\ufffd", "ü" * 67 + "…" + "ü" * 31 + "end"]
    for name in wanted:
        assert name + " 64 bytes" in told, (name, told)
    legend = [e.text for e in xml.etree.ElementTree.fromstring(picture.decode("utf-8")).iter("{http://www.w3.org/2000/svg}text")]
    assert legend[-1] == f"all others ({len(names) - 7} blocks)", legend
    assert b'stroke="none"' not in picture
    with open(path, "wb") as file:
        file.write(b"id,lower,upper,size\nlarge,0,9,1000000\nthin,0,9,1000\n")
    assert run("view", path, "--svg", "-o", "-").count(b'stroke="none"') == 1, "a border would hide what is as thin as it"


def check_segments(folder):
    """Segments of a snapshot: those that events tell of and those listed at the end alone, each with its stream; pools of those at the end."""
    path, base, mib = os.path.join(folder, "segments.pickle"), 0x7F0000000000, 1 << 20

    def event(action, address, size, stream):
        return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": 5, "frames": []}

    def listed(address, stream, kind, pool):
        return {"device": 0, "address": address, "total_size": 2 * mib, "stream": stream, "segment_type": kind, "segment_pool_id": pool, "blocks": []}

    events = [event("segment_alloc", base, 2 * mib, 3), event("alloc", base, mib, 3), event("segment_alloc", base + 4 * mib, 4 * mib, 0),
              event("free_completed", base, mib, 3), event("segment_free", base + 4 * mib, 4 * mib, 0)]
    segments = [listed(base, 3, "small", (0, 0)), listed(base + 64 * mib, 9, "large", (2, 1))]
    with open(path, "wb") as file:
        pickle.dump({"segments": segments, "device_traces": [events]}, file)
    doc = json.loads(run("view", path, "--json"))
    space = doc["spaces"][0]
    told = space["segments"]
    rows = zip([unfold(space, at) for at in numbers(told["address"], True)], numbers(told["size"]), numbers(told["begin"], True), numbers(told["life"]),
               numbers(told["stream"]), [doc["texts"][t] for t in numbers(told["pool"])])
    assert sorted(rows) == [(base, 2 * mib, 0, 0, 3, "small"), (base + 4 * mib, 4 * mib, 1, 2, 0, ""),
                            (base + 64 * mib, 2 * mib, 0, 0, 9, "large, private (2, 1)")]
    check_drawn_segments(run("view", path, "--svg", "-o", "-").decode(), space["extent_bytes"], 2 * mib)


def check_pool(folder):
    """What berth_snapshot_write tells of a pool that is pinned by one small block: the block, and the segment around it."""
    path = os.path.join(folder, "pool.trace")
    subprocess.run([live_program, "pinned", os.path.join(folder, "live.trace"), path], check=True, capture_output=True)
    doc = json.loads(run("view", path, "--json"))
    space = doc["spaces"][0]
    (block,), (segment,), (size,) = blocks_of(doc, space), numbers(space["segments"]["address"], True), numbers(space["segments"]["size"])
    assert (block["label"], block["size"], block["stays"]) == ("cache", 4096, True), block
    assert size == 1 << 20 and unfold(space, segment) < block["address"] < unfold(space, segment) + size, (block, segment, size)
    picture = run("view", path, "--svg", "-o", "-").decode()
    assert "segment of 1048576 bytes" in picture and "cache 4096 bytes" in picture, picture


def check_drawn_segments(picture, extent, size):
    """The picture has them too, behind the blocks, as long and as high as they are."""
    drawn = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"><title>segment of (\d+) bytes(.*?)</title>', picture)
    assert [(int(bytes_), words) for *_, bytes_, words in drawn] == \
        [(size, ", pool large, private (2, 1), stream 9"), (size, ", pool small, stream 3"), (2 * size, "")], drawn
    for (left, wide, high, *_), (begin, end, share) in zip(drawn, [(0, 2, 1), (0, 2, 1), (1, 2, 2)]):
        unit = 900 / 2  # two events: alloc and free
        assert abs(float(left) - 90 - begin * unit) < 0.01 and abs(float(wide) - (end - begin) * unit) < 0.01, drawn
        assert abs(float(high) - share * size / extent * 380) < 0.01, (drawn, extent)
    assert picture.index("segment of") < picture.index(" 1048576 bytes</title>"), "blocks are drawn over segments"
    assert "segments, held from the driver or the system (3)" in picture


def deep_stacks(path, chains):
    """As many call stacks of 4,096 frames, told shortly: 63 functions are inlined at one address that is called 64 times over."""
    places = " ".join(f"1 2 {0x10000000 + k:x}" for k in range(63))
    with open(path, "w", encoding="ascii") as file:
        file.write(f"v 10400 3\ns 1 f\ns 1 g\ni 1234 1 {places}\n")
        file.writelines(f"i {0x5000 + c:x} 1 1 2 {c + 1:x}\n" for c in range(chains))
        for c in range(chains):
            first = 65 * c + 1
            file.write(f"t {c + 2:x} 0\n")
            file.writelines(f"t 1 {first + k:x}\n" for k in range(64))
        file.writelines(f"a {0x100 + c:x} {65 * c + 65:x}\n+ {c:x}\n" for c in range(chains))


def check_size(folder):
    """Names that are too long are cut, so that the page stays below 15 MB; where stacks alone are more, it is said."""
    path, page = os.path.join(folder, "names.csv"), os.path.join(folder, "page.html")
    write(path, [{"id": i, "lower": i, "upper": i + 3, "size": 100, "label": f"x{i}" + 500 * "\u00fc"} for i in range(15000)])
    done = subprocess.run([berth, "view", path, "-o", page], capture_output=True, check=True, text=True)
    assert os.path.getsize(page) < 15000000 and "more than browsers" not in done.stderr, (os.path.getsize(page), done.stderr)
    assert os.path.getsize(path) > 15000000
    path = os.path.join(folder, "deep.heaptrack")
    deep_stacks(path, 300)
    done = subprocess.run([berth, "view", path, "-q", "-o", page], capture_output=True, check=True, text=True)
    assert os.path.getsize(page) > 15000000 and done.stderr.startswith("berth view: the page has 17."), (os.path.getsize(page), done.stderr)


def check_sites(folder):
    """Which frames do not tell who wants memory: the command knows, the page is told."""
    path = os.path.join(folder, "sites.pickle")
    general = ["operator new(unsigned long)", "void* std::vector<int>::grow<int>()", "png_malloc", "_Znwm", "_PyObject_New"]
    own = ["load_picture", "mallocator::run(int)", "f(std::string)"]
    frames = [{"filename": "a.cpp", "line": 3, "name": name} for name in general + own]
    event = {"action": "alloc", "addr": 0x7F0000000000, "size": 512, "stream": 0, "time_us": 5, "frames": frames}
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [[event]]}, file)
    doc = json.loads(run("view", path, "--json"))
    told = doc["frames"]
    names = [doc["texts"][t] for t in numbers(told["function"])]
    assert dict(zip(names, numbers(told["general"]))) == {**dict.fromkeys(general, 1), **dict.fromkeys(own, 0)}
    picture = run("view", path, "--svg", "-o", "-").decode()
    assert "load_picture 512 bytes</title>" in picture and ">load_picture</text>" in picture, picture
    assert "load_picture" in run("top", path).decode() and b"png_malloc" not in run("top", path)


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_logs(folder)
        check_problems(folder)
        check_names(folder)
        check_segments(folder)
        check_pool(folder)
        check_size(folder)
        check_sites(folder)


main()
