"""check_snapshot.py READ: memory snapshots in PyTorch's format, written by Python's own pickle in every protocol that has a number, are
read as a second reading of the same events says. READ prints a history as lines."""
import os
import pickle
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, paths  # noqa: E402
import torch_pickler  # noqa: E402

read = paths[0]


def lines_of(name):
    done = subprocess.run([read, name], capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout.splitlines(), done.stderr


def make(seed, devices, kept_before):
    """A random program on some devices: the snapshot, and the blocks (device, size, freed) that it tells of."""
    rng = random.Random(seed)
    frames = [[{"filename": f"model{i}.py", "line": 10 + i, "name": f"layer{i}"}, {"filename": "main.py", "line": 3, "name": "main"}]
              for i in range(5)]
    traces, segments, blocks = [], [], []
    for device in range(devices):
        events, live, time = [], {}, 1000 + device
        base = 0x7f0000000000 + (device << 32)
        place = base
        early = {}
        for i in range(kept_before):  # allocated before the trace began; every other one is freed in it
            early[place] = (512 + i, frames[i % 5])
            place += 4096
        events.append({"action": "segment_alloc", "addr": base + (1 << 30), "size": 1 << 21, "stream": 0, "time_us": time, "frames": frames[0]})
        for i, (address, (size, stack)) in enumerate(list(early.items())):
            if i % 2:
                time += rng.randrange(5)
                events.append({"action": "free_requested", "addr": address, "size": size, "stream": 0, "time_us": time, "frames": stack})
                events.append({"action": "free_completed", "addr": address, "size": size, "stream": 0, "time_us": time, "frames": stack})
                del early[address]
                blocks.append((device, size, "freed", "layer%d" % (i % 5)))
        for _ in range(3000):
            time += rng.randrange(4)
            if live and rng.random() < 0.5:
                address = rng.choice(list(live))
                size, stack, name = live.pop(address)
                events.append({"action": "free_requested", "addr": address, "size": size, "stream": 0, "time_us": time, "frames": []})
                events.append({"action": "free_completed", "addr": address, "size": size, "stream": 0, "time_us": time, "frames": []})
                blocks.append((device, size, "freed", name))
            else:
                place += 4096
                number = rng.randrange(5)
                size = rng.choice([512, 4096, 70000, 1 << 33, 0x1234])
                live[place] = (size, frames[number], f"layer{number}")
                events.append({"action": "alloc", "addr": place, "size": size, "stream": rng.choice([0, 12345678901]), "time_us": time,
                               "frames": frames[number]})
        events.append({"action": "oom", "addr": 0, "size": 1 << 40, "stream": 0, "time_us": time, "frames": frames[1], "device_free": 7})
        held = [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": stack}
                for address, (size, stack) in early.items()]
        held += [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": stack}
                 for address, (size, stack, _) in live.items()]
        held.append({"address": place + 8192, "size": 100, "requested_size": 0, "state": "inactive", "frames": []})
        segments.append({"device": device, "address": base, "total_size": 1 << 32, "stream": 0, "segment_type": "large", "blocks": held})
        blocks += [(device, size, "alive", stack[0]["name"]) for size, stack in early.values()]
        blocks += [(device, size, "alive", name) for size, _, name in live.values()]
        traces.append(events)
    if devices > 1:
        traces.insert(1, [])  # a device without events keeps its place
        segments = [dict(segment, device=segment["device"] + (segment["device"] > 0)) for segment in segments]
        blocks = [(device + (device > 0), *rest) for device, *rest in blocks]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
            "external_annotations": []}, sorted(blocks)


for seed, devices, before in [(1, 1, 0), (2, 1, 20), (3, 2, 6)]:
    snapshot, expected = make(seed, devices, before)
    for protocol in (2, 3, 4, 5, "of C++"):
        with open("snapshot.pickle", "wb") as file:
            torch_pickler.dump(snapshot, file) if protocol == "of C++" else pickle.dump(snapshot, file, protocol=protocol)
        code, lines, words = lines_of("snapshot.pickle")
        check(code == 0, f"protocol {protocol}: {words}")
        got = sorted((int(word[5].split(":")[1]), int(word[3]), word[4], word[6]) for word in
                     (line.split() for line in lines if line.startswith("block ")))
        check(got == expected, f"seed {seed}, protocol {protocol}: {len(got)} blocks, {len(expected)} expected")
        check(sum(line.startswith("moment") for line in lines) == devices, "refusals are told")
        check(any(line.startswith("segment 2097152") for line in lines), "segments are told")
        check(lines and lines[-1] == "unknown 0 lost 0", f"nothing is left over: {lines[-1:]}")

# Without events only what was alive is known, and the file says so.
snapshot, _ = make(4, 1, 4)
snapshot["device_traces"] = []
with open("snapshot.pickle", "wb") as file:
    pickle.dump(snapshot, file)
code, lines, words = lines_of("snapshot.pickle")
check(code == 0 and any("_record_memory_history" in line for line in lines), "a snapshot without a history says what to do")
# PyTorch's index of the CPU, as berth_torch writes it.
for segment in snapshot["segments"]:
    segment["device"] = -1
with open("snapshot.pickle", "wb") as file:
    pickle.dump(snapshot, file)
code, lines, words = lines_of("snapshot.pickle")
check(code == 0 and {line.split()[5] for line in lines if line.startswith("block ")} == {"cpu"}, f"device -1 is the CPU: {lines[:1]}")
check(any("berth_torch.trace" in line for line in lines), "a snapshot of the CPU says what else there is")

# Newer snapshots: what the program says of an allocation, pinned host memory, and the list of segments alone.
stack = [{"filename": "m.py", "line": 1, "name": "f"}]


def event(action, address, size, time, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "compile_context": "N/A", "user_metadata": "",
            "frames": stack, **more}


def segment(address, *blocks, **more):
    return {"address": address, "total_size": 1 << 21, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "frames": stack,
            "blocks": [{"address": address + i * 4096, "size": size, "requested_size": size, "state": state, "frames": stack}
                       for i, (size, state) in enumerate(blocks)], **more}


A = 0x7f0000000000
newer = {"segments": [segment(A, (4096, "active_allocated"), device=0)],
         "device_traces": [[event("alloc", A, 4096, 1, user_metadata="weights", compile_context="Torch-Compiled Region: 0/0"),
                            event("alloc", A + 8192, 512, 2), event("free_requested", A + 8192, 512, 3, user_metadata="late"),
                            event("free_completed", A + 8192, 512, 3, user_metadata="late"),
                            event("oom", 0, 1 << 40, 9)]],
         "host_segments": [segment(A + (1 << 30), (640, "active_allocated"), (704, "active_awaiting_free"), (128, "inactive"), device=0)],
         "host_traces": [event("alloc", A + (1 << 30), 640, 2), event("alloc", A + (1 << 31), 100, 4), event("free_completed", A + (1 << 31), 100, 5)]}
newer["external_annotations"] = [{"stage": stage, "name": name, "device": device, "time_us": time}
                                 for stage, name, device, time in [("START", "step 1", 0, 0), ("END", "step 1", 0, 2), ("START", "load", 1, 3)]]
with open("snapshot.pickle", "wb") as file:
    pickle.dump(newer, file)
code, lines, words = lines_of("snapshot.pickle")
got = sorted(tuple(line.split()[3:6]) for line in lines if line.startswith("block "))
check(code == 0 and got == sorted([("4096", "alive", "cuda:0"), ("512", "freed", "cuda:0"), ("640", "alive", "pinned:0"), ("704", "alive", "pinned:0"),
                                   ("100", "freed", "pinned:0")]), f"pinned memory is a device of its own: {code} {got} {words}")
check([line for line in lines if line.startswith("label ")] == ["label 4096 weights"], f"what the program says is the label: {lines}")
told = [line for line in lines if line.startswith("moment ")]
check(told == ["moment 0 step 1", "moment 0 load", f"moment {1 << 40} "], f"annotations are named moments: {lines}")
with open("snapshot.pickle", "wb") as file:
    pickle.dump({key: value for key, value in newer.items() if not key.startswith("host")}, file)
code, lines, words = lines_of("snapshot.pickle")
check([line for line in lines if line.startswith("moment ")] == told, f"at their times, also behind the only trace: {lines}")
with open("snapshot.pickle", "wb") as file:
    pickle.dump({"device_traces": [[event("alloc", A, -7, 1), event("alloc", A + 8192, 512, 2)]]}, file)
code, lines, words = lines_of("snapshot.pickle")
check(code == 0 and [line.split()[3] for line in lines if line.startswith("block ")] == ["0", "512"], f"no size is below nothing: {lines} {words}")
with open("snapshot.pickle", "wb") as file:
    pickle.dump(newer["segments"], file)
code, lines, words = lines_of("snapshot.pickle")
check(code == 0 and [line.split()[3:6] for line in lines if line.startswith("block ")] == [["4096", "alive", "cuda:0"]],
      f"a list of segments is a snapshot: {lines} {words}")


class Trap:
    """What a pickle can do to who loads it."""

    def __reduce__(self):
        return (os.system, ("touch trapped",))


with open("trap.pickle", "wb") as file:
    pickle.dump({"segments": [Trap()], "device_traces": [[Trap()]]}, file)
code, lines, words = lines_of("trap.pickle")
check(not os.path.exists("trapped"), "nothing in a pickle is executed")
with open("other.pickle", "wb") as file:
    pickle.dump([1, 2.5, None, True, "x", (1, 2), {3}], file)
code, lines, words = lines_of("other.pickle")
check(code != 0 and "no memory snapshot" in words, f"another pickle is named: {words}")

# Damage anywhere is a status with a place, or another history, but never a crash.
snapshot, _ = make(5, 1, 4)
snapshot["device_traces"][0] = snapshot["device_traces"][0][:60]
rng = random.Random(9)
for protocol in (2, 5):
    good = pickle.dumps(snapshot, protocol=protocol)
    for _ in range(150):
        bad = bytearray(good[:rng.randrange(len(good))] if rng.random() < 0.3 else good)
        for _ in range(rng.randrange(4)):
            if bad:
                bad[rng.randrange(len(bad))] = rng.randrange(256)
        with open("bad.pickle", "wb") as file:
            file.write(bad)
        code, lines, words = lines_of("bad.pickle")
        check(code in (0, 1), f"exit {code} on a damaged pickle: {words}")

finish()
