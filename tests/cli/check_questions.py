"""check_questions.py BERTH LIVE: what `berth explain-oom` and `berth what-if` say is true.

- Programs made to fail for one reason: the reason, the holder and the pin are named first.
- Random programs, as problems, traces and snapshots: every change that is offered is made here, by this script's own arithmetic, and the
  peak that was promised comes out; `berth plan` reaches the planned figure.
- A program that runs out of memory says the same of itself (berth_explain) as explain-oom does of its trace.
- PyTorch's allocator as modelled takes what a second, slow statement of its rules takes, and is as far off a snapshot as is said."""
import json
import math
import os
import pickle
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402

berth, live_program = paths


def ask(*words):
    done = subprocess.run([berth, *words], capture_output=True, text=True)
    if done.returncode > 1:
        check(False, f"{words} exits {done.returncode}: {done.stderr}")
        return {}
    return json.loads(done.stdout)


def write_rows(name, rows):
    """Rows of id, lower, upper, size, gaps, label."""
    with open(name, "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size,gaps,label\n")
        for number, (lower, upper, size, gap, label) in enumerate(rows):
            file.write(f"{number},{lower},{upper},{size},{f'{gap[0]}-{gap[1]}' if gap else ''},{label}\n")


# ---- Known causes ------------------------------------------------------------------------------------------

class Program:
    """A PyTorch snapshot, event by event."""

    def __init__(self):
        self.events, self.segments, self.time = [], [], 0

    def frames(self, site):
        return [{"filename": "app.py", "line": sum(map(ord, site)), "name": site}]

    def add(self, action, addr, size, site="main", stream=0, **more):
        self.time += 1
        self.events.append({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": self.time,
                            "frames": self.frames(site), **more})

    def free(self, addr, size):
        self.add("free_requested", addr, size)
        self.add("free_completed", addr, size)

    def save(self, name):
        with open(name, "wb") as file:
            pickle.dump({"segments": self.segments, "device_traces": [self.events]}, file)
        return name


MIB = 1 << 20


def leak(seed):
    """Weights that are larger than the leak, layers that come and go, and one site that forgets."""
    rng = random.Random(seed)
    p, place, held = Program(), MIB, 0
    p.add("segment_alloc", 0, 1 << 32)
    for _ in range(4):
        p.add("alloc", place, 20 * MIB, "load_weights")
        place += 20 * MIB
    for step in range(60):
        layers = []
        for layer in range(6):
            size = rng.randrange(1, 4) * MIB
            p.add("alloc", place, size, f"layer{layer}")
            layers.append((place, size))
            place += size
        if rng.random() < 0.7:
            p.add("alloc", place, MIB, "remember_loss")
            place += MIB
            held += 1
        for addr, size in layers:
            p.free(addr, size)
    limit = (80 + held) * MIB + 5 * MIB
    p.add("oom", 0, 8 * MIB, "layer0", device_free=0)
    return p.save("leak.pickle"), limit


for seed in range(10):
    name, limit = leak(seed)
    said = ask("explain-oom", name, "--limit", str(limit), "--json")
    check(said.get("fails") and said["cause"] == "too much is alive", f"leak {seed}: {said.get('cause')}")
    check("remember_loss" in (said.get("growing") or ""), f"leak {seed}: {said.get('growing')} is named, not the leak")
    check(said["changes"] and "remember_loss" in said["changes"][0]["of"] and said["changes"][0]["change"] == "free_previous",
          f"leak {seed}: {[c['words'] for c in said['changes']]}")
    check(all(c["bound_bytes"] <= limit for c in said["changes"]), f"leak {seed}: a change does not fit")

    # Two that forget.
    p = Program()
    for step in range(40 + seed):
        for site, size in (("one_leak", MIB), ("another_leak", 2 * MIB)):
            p.add("alloc", (2 * step + (site == "one_leak") + 1) << 30, size, site)
    said = ask("explain-oom", p.save("leaks.pickle"), "--limit", str(60 * MIB), "--json")
    found = [said["growing"]] + [one["name"] for one in said["growing_too"]]
    check(len(found) == 2 and "another_leak" in found[0] and "one_leak" in found[1], f"two leaks {seed}: {found}")

    # One block in the middle of a segment: half of it is free on both sides.
    rng = random.Random(seed)
    p = Program()
    p.add("segment_alloc", 1 << 30, 64 * MIB)
    at = rng.randrange(20, 40) * MIB
    p.add("alloc", 1 << 30, at, "early")
    p.add("alloc", (1 << 30) + at, 4096, "pin_it")
    p.add("alloc", (1 << 30) + at + MIB, 63 * MIB - at, "late")
    p.free(1 << 30, at)
    p.free((1 << 30) + at + MIB, 63 * MIB - at)
    p.add("oom", 0, 60 * MIB, "big", device_free=rng.randrange(10) * MIB)
    said = ask("explain-oom", p.save("pinned.pickle"), "--json")
    check(said["cause"] == "fragmented", f"pin {seed}: {said['cause']}")
    check(said["pins"] == 1 and "pin_it" in said["pinned_by"][0]["name"], f"pin {seed}: {said['pinned_by']}")
    check(said["largest_hole_bytes"] == max(at, 64 * MIB - at - 4096), f"pin {seed}: {said['largest_hole_bytes']}")
    check(said["bound_bytes"] == 63 * MIB + 4096 and said["planned_bytes"] == said["bound_bytes"], f"pin {seed}: {said['bound_bytes']}")

# Freed, but a stream still uses it; an idle segment; a hole that is another stream's.
p = Program()
p.add("segment_alloc", 1 << 30, 64 * MIB)
p.add("alloc", 1 << 30, 64 * MIB, "copied")
p.add("free_requested", 1 << 30, 64 * MIB)
p.add("oom", 0, 60 * MIB, "next", device_free=MIB)
said = ask("explain-oom", p.save("streams.pickle"), "--json")
check(said["cause"] == "held by streams" and said["waiting_bytes"] == 64 * MIB, f"streams: {said['cause']}")
p = Program()
for place in (1 << 30, 1 << 31):
    p.add("segment_alloc", place, 64 * MIB, stream=7)
    p.add("alloc", place, 64 * MIB, "other", stream=7)
p.free(1 << 30, 64 * MIB)
p.add("oom", 0, 32 * MIB, "next", stream=9, device_free=MIB)
said = ask("explain-oom", p.save("elsewhere.pickle"), "--json")
check(said["cause"] == "held by streams", f"another stream's: {said['cause']}")
p = Program()
for i in range(4):
    p.add("segment_alloc", (1 << 30) + i * 16 * MIB, 16 * MIB)
    p.add("alloc", (1 << 30) + i * 16 * MIB, 16 * MIB, "stage")
for i in range(3):
    p.free((1 << 30) + i * 16 * MIB, 16 * MIB)
p.add("oom", 0, 40 * MIB, "next", device_free=0)
said = ask("explain-oom", p.save("cache.pickle"), "--json")
check(said["cause"] == "held by a cache" and said["unused_segment_bytes"] == 48 * MIB, f"cache: {said['cause']}")

# While it happens, and from the trace of it.
for scenario, cause, holder in (("leak", "too much is alive", "loss"), ("pinned", "fragmented", "cache"),
                                ("streams", "held by streams", "cache")):
    told = subprocess.run([live_program, scenario, "live.trace"], capture_output=True, text=True, check=True).stdout
    facts = dict(line.strip().split(": ", 1) for line in told.splitlines())
    said = ask("explain-oom", "live.trace", "--json", "--limit", str(MIB))
    check(said["recorded"] and said["cause"] == cause, f"{scenario}: from the trace {said['cause']}")
    check(facts["cause"].startswith(cause) and f": {cause}" in facts["message"], f"{scenario}: live {told}")
    labels = [(one["name"], one["bytes"]) for one in said["by_label"]]
    check(labels[0][0] == holder, f"{scenario}: {labels}")
    check([part.split(" ")[0] for part in facts["largest labels"].split(", ")] == [name for name, _ in labels],
          f"{scenario}: live {facts['largest labels']}, from the trace {labels}")
    check(all(f"{held} bytes" in facts["largest labels"] for _, held in labels), f"{scenario}: {facts['largest labels']}, {labels}")
    if scenario == "leak":
        check(said["growing"] == "loss" and said["changes"][0]["of"] == "loss", f"{scenario}: {said['growing']}")
    elif scenario == "streams":
        check(said["waiting_bytes"] == 900 << 10 and "held by streams: 900 KiB" in facts["cause"], f"{scenario}: {said['waiting_bytes']}, {told}")
        check(said["largest_hole_bytes"] < 800 << 10, f"{scenario}: {said['largest_hole_bytes']}")
        subprocess.run([berth, "convert", "live.trace", "-o", "again.trace"], check=True, capture_output=True)
        again = ask("explain-oom", "again.trace", "--json", "--limit", str(MIB))
        check({**again, "input": ""} == {**said, "input": ""}, f"{scenario}: converted, it is {again}")
    else:
        check(said["pinned_by"][0]["name"] == "cache" and "pinned by cache" in facts["cause"], f"{scenario}: {said['pinned_by']}")


# ---- Promises ----------------------------------------------------------------------------------------------

def peak_of(rows):
    turns = []
    for lower, upper, size, gap, _ in rows:
        for begin, end in ([(lower, gap[0]), (gap[1], upper)] if gap else [(lower, upper)]):
            if begin < end:
                turns += [(begin, 1, size), (end, 0, -size)]
    live = most = 0
    for _, _, size in sorted(turns):
        live += size
        most = max(most, live)
    return most


def in_states(rows):
    """The same lives with times counted in events, as the command counts them: state n is after n events."""
    turns = sorted([(lower, 1, i) for i, (lower, *_) in enumerate(rows)] + [(row[1], 0, i) for i, row in enumerate(rows)])
    begins, ends = {}, {}
    for event, (_, begins_here, i) in enumerate(turns):
        (begins if begins_here else ends)[i] = event + 1
    return [(begins[i], ends[i], row[2], None, row[4]) for i, row in enumerate(rows)]


def changed(rows, change):
    """`rows`, in the order of begins, with a change made to every row of its label."""
    of = [i for i, row in enumerate(rows) if row[4] == change["of"]]
    check(len(of) == change["blocks"], f"{change['of']} has {len(of)} blocks, not {change['blocks']}")
    rows = list(rows)
    for k, i in enumerate(of):
        lower, upper, size, gap, label = rows[i]
        if change["change"] == "shrink":
            size = -(-size * round(change["scale"] * 1000000) // 1000000)
        elif change["change"] == "free_early":
            upper = lower + -(-(upper - lower) * round(change["scale"] * 1000000) // 1000000)
        elif change["change"] == "free_halfway":
            upper = lower + (upper - lower + 1) // 2
        elif change["change"] == "free_previous" and k + 1 < len(of):
            upper = min(upper, rows[of[k + 1]][0])
        elif change["change"] == "recompute" and upper - lower > 2:
            gap = (lower + 1, upper - 1)
        rows[i] = (lower, upper, size, gap, label)
    return rows


def plan_reaches(rows, bytes_promised, what):
    write_rows("changed.csv", rows)
    done = subprocess.run([berth, "plan", "changed.csv", "--json", "--capacity", str(bytes_promised), "--effort", "max"],
                          capture_output=True, text=True)
    check(done.returncode == 0, f"{what}: no plan of {bytes_promised} bytes")


def in_csv(rows):
    write_rows("random.csv", rows)
    return "random.csv"


def in_snapshot(rows):
    """The same program as PyTorch would record it: every event in turn, blocks where none was before."""
    p = Program()
    turns = sorted([(lower, 1, i) for i, (lower, *_) in enumerate(rows)] + [(row[1], 0, i) for i, row in enumerate(rows)])
    for _, begins, i in turns:
        size, site = rows[i][2], rows[i][4]
        if begins:
            p.add("alloc", (i + 1) << 20, size, site.split(" ")[0])
        else:
            p.free((i + 1) << 20, size)
    return p.save("random.pickle")


def in_trace(rows, of=in_csv, name="random.trace"):
    subprocess.run([berth, "convert", of(rows), "-o", name], check=True, capture_output=True)
    return name


# As labels, and as call sites, which the answers name with file and line.
FORMS = {"CSV": in_csv, "trace": in_trace, "snapshot": in_snapshot,
         "trace of a snapshot": lambda rows: in_trace(rows, in_snapshot)}


def random_rows(rng, count, times, labels, longest, form, lasts):
    rows = []
    for _ in range(count):
        lower = rng.randrange(times)
        upper = times if rng.random() < 0.3 and lasts else rng.randrange(lower + 1, min(lower + longest, times) + 1)
        size, label = rng.randrange(1, 4000), f"g{rng.randrange(labels)}"
        if "snapshot" in form:
            label += f" (app.py:{sum(map(ord, label))})"
        rows.append((lower, upper, size, None, label))
    return rows


kinds = {}


def check_what_if(what, asked, rows, lives, plans):
    """Without a limit every step lowers the peak."""
    said = ask("what-if", *asked)
    check(said["live_bytes"] == said["bound_bytes"] == peak_of(rows), f"{what}: the peak is {peak_of(rows)}, not {said['bound_bytes']}")
    now, before = lives, peak_of(rows)
    for step in said["steps"]:
        kinds.setdefault(step["change"], set()).add(step["by"])
        now = changed(now, step)
        check(peak_of(now) == step["bound_bytes"] < before, f"{what}: {step['words']} gives {peak_of(now)}, not {step['bound_bytes']}")
        before = step["bound_bytes"]
    check(said["steps_planned_bytes"] >= said["steps_bound_bytes"] == before, f"{what}: the steps' bound")
    if plans:
        plan_reaches(now, said["steps_planned_bytes"], f"{what}: all steps")


def check_what_if_limit(what, asked, lives, limit):
    said = ask("what-if", *asked, "--limit", str(limit))
    now = lives
    for step in said["steps"]:
        now = changed(now, step)
        check(peak_of(now) == step["bound_bytes"], f"{what}: under {limit} {step['words']} gives {peak_of(now)}, not {step['bound_bytes']}")
    check((said["fits"] == "no") == (peak_of(now) > limit), f"{what}: {said['fits']}, but it takes {peak_of(now)} of {limit}")
    check(said["fits"] != "yes" or said["steps_planned_bytes"] <= limit, f"{what}: the plan does not fit")


def first_over(rows, limit):
    """What is alive when a block does not fit, and that block."""
    live = 0
    for _, begins, i in sorted([(r[0], 1, i) for i, r in enumerate(rows)] + [(r[1], 0, i) for i, r in enumerate(rows)]):
        if begins and live + rows[i][2] > limit:
            return live, rows[i][2], rows[i][4]
        live += rows[i][2] if begins else -rows[i][2]
    return None


def check_explained(what, asked, rows, lives, limit, plans):
    said = ask("explain-oom", *asked, "--limit", str(limit))
    check(said["fails"] and said["cause"] == "too much is alive", f"{what}: {said.get('cause')}")
    first = first_over(rows, limit)
    found = said["live_bytes"], said["asked_bytes"], said["asked_for"]
    check(found == first, f"{what}: fails otherwise than {first}: {found}")
    costs = [(c["planned_bytes"] > limit, c["cost_bytes"]) for c in said["changes"]]
    check(costs == sorted(costs), f"{what}: the cheapest is not first: {costs}")
    for one in said["changes"]:
        kinds.setdefault(one["change"], set()).add(one["by"])
        check(peak_of(changed(lives, one)) == one["bound_bytes"] <= limit, f"{what}: {one['words']} alone gives {one['bound_bytes']}")
        check(one["planned_bytes"] >= one["bound_bytes"], f"{what}: a plan below the bound")
        if one["change"] == "free_early" and one["planned_bytes"] == one["bound_bytes"] and one["scale"] < 0.99:
            longer = {**one, "scale": one["scale"] + 0.01}
            check(peak_of(changed(lives, longer)) > limit, f"{what}: {one['words']} could live longer")
        if plans:
            plan_reaches(changed(lives, one), one["planned_bytes"], f"{what}: {one['words']}")


def check_promises(form, seed):
    rng = random.Random(f"{form} {seed}" if form != "CSV" else seed)
    count, times, labels, longest = rng.randrange(3, 60), rng.randrange(4, 200), rng.randrange(2, 8), 200
    if seed >= 55:  # many blocks that live for a moment: most of the states are not looked at one by one
        count, times, labels, longest = rng.randrange(2000, 4000), 5000, rng.randrange(100, 1000), rng.randrange(2, 40)
    rows = random_rows(rng, count, times, labels, longest, form, seed < 55)
    what, lives, limit = f"{form} {seed}", sorted(in_states(rows)), peak_of(rows) * rng.randrange(40, 100) // 100
    asked = [FORMS[form](rows), "--json", "--align", "1"]
    check_what_if(what, asked, rows, lives, seed < 20)
    check_what_if_limit(what, asked, lives, limit)
    check_explained(what, asked, rows, lives, limit, seed < 10)


for form in FORMS:
    for seed in range(60 if form == "CSV" else 8):
        check_promises(form, seed)
check(kinds == {change: {"label", "site"} for change in ("shrink", "free_halfway", "free_early", "recompute", "free_previous")},
      f"not every kind was offered, of labels and of call sites: {kinds}")

# ---- Gaps, shared places, fixed ones -------------------------------------------------------------------------

def problem_rows(rng):
    """Rows of lower, upper, size, gaps, label, alias, fixed, alignment; members of a group have one label."""
    rows, at = [], 0
    for number in range(rng.randrange(3, 25)):
        lower = rng.randrange(60)
        upper = rng.randrange(lower + 1, 62)
        gaps, t = [], lower + 1
        while rng.random() < 0.4 and t + 1 < upper:
            end = rng.randrange(t + 1, upper + 1)
            gaps.append((t, end))
            t = end + 1
        alias, align, fixed = rng.choice([0, 0, 1, 2, 3]), rng.choice([1, 1, 1, 16, 24, 64]), None
        size = rng.randrange(1, 500)
        if not alias and rng.random() < 0.15:  # each above the last, so that none collide
            fixed = at = -(-(at + rng.randrange(100)) // align) * align
            at += size
        rows.append((lower, upper, size, gaps, f"a{alias}" if alias else f"g{number % 5}", alias, fixed, align))
    return rows


def units_of(rows):
    """By unit: label, fixed offset, alignments, and parts (lower, upper, size) as the place holds them, moment by moment."""
    units, groups = {}, {0: 0}
    for number, (lower, upper, size, gaps, label, alias, fixed, align) in enumerate(rows):
        unit = units.setdefault(("alias", alias) if alias else number,
                                {"label": label, "fixed": fixed, "align": [], "there": [], "group": groups.setdefault(alias, len(groups))})
        unit["align"].append(align)
        edges = [lower] + [t for gap in gaps for t in gap] + [upper]
        unit["there"] += [(begin, end, number, size) for begin, end in zip(edges[::2], edges[1::2]) if begin < end]
    for unit in units.values():
        unit["parts"], last = [], None
        for t in range(62):
            now = min(((-s, begin, n) for begin, end, n, s in unit["there"] if begin <= t < end), default=None)
            if now and last and now[2] == last[2]:
                unit["parts"][-1][1] = t + 1
            elif now:
                unit["parts"].append([t, t + 1, -now[0], now[2]])
            last = now
    return [unit for unit in units.values() if unit["parts"]]


def units_in_states(units):
    """The parts of units with times counted in events; at one moment those of groups come behind the others, group by group."""
    parts = [part for unit in units for part in unit["parts"]]
    shared = {id(part): unit["group"] for unit in units for part in unit["parts"]}
    turns = []
    for part in parts:
        key = (shared[id(part)], part[0] if shared[id(part)] else 0, part[3], part[0])
        turns += [(part[0], 1, key, part), (part[1], 0, key, part)]
    begins, ends = {}, {}
    for event, (_, begins_here, _, part) in enumerate(sorted(turns, key=lambda turn: turn[:3])):
        (begins if begins_here else ends)[id(part)] = event + 1
    return sorted(({**unit, "parts": [(begins[id(p)], ends[id(p)], p[2]) for p in unit["parts"]]} for unit in units),
                  key=lambda unit: unit["parts"][0][0])


def unit_changed(units, change):
    of = [i for i, unit in enumerate(units) if unit["label"] == change["of"]]
    check(len(of) == change["blocks"], f"{change['of']} has {len(of)} blocks, not {change['blocks']}")
    units = list(units)
    for k, i in enumerate(of):
        parts = units[i]["parts"]
        begin, end = parts[0][0], max(part[1] for part in parts)
        gap = (end, end)
        if change["change"] == "shrink":
            parts = [(lower, upper, -(-size * round(change["scale"] * 1000000) // 1000000)) for lower, upper, size in parts]
        elif change["change"] == "free_early":
            end = begin + -(-(end - begin) * round(change["scale"] * 1000000) // 1000000)
        elif change["change"] == "free_halfway":
            end = begin + (end - begin + 1) // 2
        elif change["change"] == "free_previous" and k + 1 < len(of):
            end = min(end, max(begin + 1, units[of[k + 1]]["parts"][0][0]))
        elif change["change"] == "recompute" and end - begin > 2:
            gap = (begin + 1, end - 1)
        cut = [(lower, min(upper, end, gap[0]), size) for lower, upper, size in parts]
        cut += [(max(lower, gap[1]), min(upper, end), size) for lower, upper, size in parts if gap[0] < gap[1]]
        units[i] = {**units[i], "parts": [part for part in cut if part[0] < part[1]], "size": max(part[2] for part in parts)}
    return units


def units_peak(units):
    """The most at once, or the end of the last fixed place."""
    live = [0] * 400
    for unit in units:
        for lower, upper, size in unit["parts"]:
            for t in range(lower, upper):
                live[t] += size
    ends = [unit["fixed"] + unit.get("size", max(p[2] for p in unit["parts"])) for unit in units if unit["fixed"] is not None]
    return max(live + ends)


def units_plan(units, bytes_promised, what):
    with open("units.csv", "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size,alignment,fixed,alias\n")
        for number, unit in enumerate(units):
            for k, (lower, upper, size) in enumerate(unit["parts"]):
                fixed = "" if unit["fixed"] is None else unit["fixed"]
                file.write(f"{number}.{k},{lower},{upper},{size},{math.lcm(*unit['align'])},{fixed},u{number}\n")
    done = subprocess.run([berth, "plan", "units.csv", "--json", "--capacity", str(bytes_promised), "--effort", "max"], capture_output=True, text=True)
    check(done.returncode == 0, f"{what}: no plan of {bytes_promised} bytes")


def check_units(seed):
    rows = problem_rows(random.Random(f"units {seed}"))
    with open("ties.csv", "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size,gaps,label,alias,fixed,alignment\n")
        for number, (lower, upper, size, gaps, label, alias, fixed, align) in enumerate(rows):
            file.write(f"r{number},{lower},{upper},{size},{' '.join(f'{a}-{b}' for a, b in gaps)},{label},{f'p{alias}' if alias else ''},"
                       f"{'' if fixed is None else fixed},{align}\n")
    what, units = f"gaps and places {seed}", units_in_states(units_of(rows))
    said = ask("what-if", "ties.csv", "--json")
    check(said["bound_bytes"] == units_peak(units), f"{what}: the peak is {units_peak(units)}, not {said['bound_bytes']}")
    proven = json.loads(subprocess.run([berth, "plan", "ties.csv", "--json", "--effort", "max"], capture_output=True, text=True, check=True).stdout)
    planned = {p["name"]: p["peak_bytes"] for p in said["policies"]}["a plan: planned"]
    check(planned >= proven["lower_bound"], f"{what}: a plan of {planned}, below what is possible, {proven['lower_bound']}")
    now = units
    for step in said["steps"]:
        now = unit_changed(now, step)
        check(units_peak(now) == step["bound_bytes"], f"{what}: {step['words']} gives {units_peak(now)}, not {step['bound_bytes']}")
    if seed < 8:
        units_plan(now, said["steps_planned_bytes"], f"{what}: all steps")
    limit = said["live_bytes"] * 4 // 5
    for one in ask("explain-oom", "ties.csv", "--json", "--limit", str(limit)).get("changes", []):
        after = units_peak(unit_changed(units, one))
        check(after == one["bound_bytes"] <= limit, f"{what}: {one['words']} alone gives {after}, not {one['bound_bytes']}")


for seed in range(24):
    check_units(seed)

# A place that is fixed above the limit; a gap and a shared place, without which it would not fit.
with open("fixed.csv", "w", encoding="utf-8") as file:
    file.write("id,lower,upper,size,gaps,alias,fixed\na,0,10,100,4-6,,\nb,4,6,100,,,\nc,0,5,50,,x,\nd,4,9,50,,x,\ne,7,9,10,,,900\n")
said = ask("explain-oom", "fixed.csv", "--json", "--limit", "900")
check(said["asked_for"] == "e" and said["cause"] == "fragmented" and said["bound_bytes"] == 910, f"fixed above the limit: {said}")
said = ask("explain-oom", "fixed.csv", "--json", "--limit", "910")
check(not said["fails"] and said["planned_bytes"] == 910, f"fixed below the limit: {said}")
with open("aligned.csv", "w", encoding="utf-8") as file:
    file.write("id,lower,upper,size,alignment\na,0,9,1000,4096\nb,0,9,1000,4096\nc,0,9,1000,4096\n")
said = ask("explain-oom", "aligned.csv", "--json", "--limit", "8192")
check(not said["fails"] and said["live_bytes"] == 3000 and said["planned_bytes"] == 9192, f"aligned: {said}")

# The tensors of a model live until their last use: nothing can go earlier.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import make_onnx  # noqa: E402
net = make_onnx.model([make_onnx.node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(6)] + [make_onnx.node("Add", ["t1", "t6"], ["y"])],
                      [("t0", [4096])], [("y", None, 0)])
with open("net.onnx", "wb") as file:
    file.write(net)
said = ask("what-if", "net.onnx", "--json")
check(said["steps"][0]["of"] in ("t1 (f32 [4096] Relu)", "y (f32 [4096] Add)"), f"which tensor of a model: {said['steps'][0]['of']}")
scaled = {p["name"]: p["peak_bytes"] for p in ask("what-if", "net.onnx", "--json", "--scale", "t1=0", "--scale", "t2=0")["policies"]}
check(scaled["scaled as asked: bound"] == 2 * 4 * 4096, f"scaled: {scaled}")
check(said["steps"] and {step["change"] for step in said["steps"]} <= {"shrink", "recompute"}, f"of a model: {said['steps']}")
said = ask("explain-oom", "net.onnx", "--json", "--limit", "40K")
check(said["fails"] and {one["change"] for one in said["changes"] + said["steps"]} <= {"shrink", "recompute"}, f"of a model: {said['changes']}")

# A smaller batch, and the groups that it does not touch.
rows = [(0, 10, 1000, None, "weights"), (1, 6, 4001, None, "act"), (2, 8, 3000, None, "act")]
write_rows("batch.csv", rows)
said = ask("what-if", "batch.csv", "--json", "--scale", "act=0.5")
scaled = {p["name"]: p["peak_bytes"] for p in said["policies"]}
check(scaled["scaled as asked: bound"] == 1000 + 2001 + 1500, f"scaled: {scaled}")


# ---- PyTorch's rules, said again ---------------------------------------------------------------------------

def pytorch_peak(events, expandable):
    """Free pieces in plain lists; (action, key, size, stream). What is taken from the device at most."""
    pieces, reserved, most, next_address = [], 0, 0, 1  # a piece: [segment, address, size, free, kind]
    held = {}
    for action, name, asked, stream in events:
        if action == "free":
            held.pop(name)[3] = True
            merged = []
            for piece in sorted(pieces, key=lambda q: (q[0], q[1])):
                last = merged[-1] if merged else None
                if last and last[3] and piece[3] and last[0] == piece[0] and last[1] + last[2] == piece[1]:
                    last[2] += piece[2]
                else:
                    merged.append(piece)
            pieces = merged
            continue
        size = max(512, -(-asked // 512) * 512)
        kind = (stream, size <= MIB)
        fitting = [q for q in pieces if q[3] and q[4] == kind and q[2] >= size]
        if fitting:
            piece = min(fitting, key=lambda q: (q[2], q[1]))
        elif expandable:
            own = [q for q in pieces if q[4] == kind]
            tail = max(own, key=lambda q: q[1]) if own else None
            unit = 2 * MIB if kind[1] else 20 * MIB
            have = tail[2] if tail and tail[3] else 0
            more = -(-(size - have) // unit) * unit
            reserved += more
            if have:
                tail[2] += more
                piece = tail
            else:
                piece = [str(kind), tail[1] + tail[2] if tail else 0, more, True, kind]
                pieces.append(piece)
        else:
            more = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            reserved += more
            piece = [str(next_address), next_address, more, True, kind]
            next_address += more
            pieces.append(piece)
        most = max(most, reserved)
        rest = piece[2] - size
        piece[3] = False
        if rest >= 512 if kind[1] or expandable else rest > MIB:
            pieces.append([piece[0], piece[1] + size, rest, True, kind])
            piece[2] = size
        held[name] = piece
    return most


for seed in range(12):
    rng = random.Random(100 + seed)
    p, events, live, place = Program(), [], {}, 1 << 40
    for _ in range(300):
        if live and rng.random() < 0.48:
            key = rng.choice(list(live))
            p.free(key, live[key])
            events.append(("free", key, live.pop(key), 0))
            continue
        size = rng.choice([rng.randrange(1, 4096), rng.randrange(1, MIB), rng.randrange(MIB, 12 * MIB), rng.randrange(10 * MIB, 70 * MIB)])
        stream = rng.choice([0, 0, 5])
        live[place] = size
        p.add("alloc", place, size, stream=stream)
        events.append(("alloc", place, size, stream))
        place += 1 << 30
    said = ask("what-if", p.save("model.pickle"), "--json")
    figures = {q["name"]: q["peak_bytes"] for q in said["policies"]}
    for expandable in (False, True):
        name = "PyTorch's cache, expandable segments" if expandable else "PyTorch's cache"
        check(figures[name] == pytorch_peak(events, expandable), f"{seed}: {name} takes {figures[name]}, not {pytorch_peak(events, expandable)}")

# A snapshot says itself what PyTorch took from the device, which the model is compared with: here it took more or less than the rules
# that we know would have, by so much.
for taken, asked, wrong in (((40,), (30,), -0.25), ((16,), (5,), 0.25), ((20, 2), (5, 0.5), 0.0), ((63, 2), (30, 0.5), 32 / 65 - 1)):
    p = Program()
    for i, (segment, block) in enumerate(zip(taken, asked)):
        p.add("segment_alloc", (i + 1) << 40, segment * MIB)
        p.add("alloc", (i + 1) << 40, int(block * MIB))
    said = ask("what-if", p.save("known.pickle"), "--json")
    check(abs(said["model_error"] - wrong) < 1e-6, f"{taken} MiB for {asked}: the model is {said['model_error']} off, not {wrong}")
finish()
