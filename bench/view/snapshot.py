#!/usr/bin/env python3
"""snapshot.py BYTES FILE: writes a memory snapshot as PyTorch does (pickle protocol 4, one device, shared call stacks), of about BYTES
bytes: random allocations and frees of 2,000 blocks. It is written piece by piece, as Python's pickler would, in little memory."""
import random
import struct
import sys


def text(word):
    data = word.encode()
    return b"\x8c" + bytes([len(data)]) + data + b"\x94"


def number(n):
    if n < 256:
        return b"K" + bytes([n])
    if n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes(n.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(data)]) + data


def main():
    wanted, path = int(sys.argv[1]), sys.argv[2]
    rng = random.Random(1)
    memo = {}
    with open(path, "wb") as out:
        written = 0

        def put(data):
            nonlocal written
            written += len(data)
            out.write(data)

        def keep(name, data):
            memo[name] = len(memo)
            put(data)

        def got(name):
            at = memo[name]
            return b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at)

        put(b"\x80\x04")
        # Texts and stacks first, in a list of their own: a pickler would write each where it first stands.
        keep("top", b"}\x94")
        put(b"(")
        keep("shared", text("shared"))
        keep("list", b"]\x94")
        put(b"(")
        words = ["action", "addr", "size", "stream", "time_us", "frames", "category", "alloc", "free_requested", "free_completed", "unknown",
                 "filename", "line", "name", "device_traces", "segments"]
        for word in words:
            keep(word, text(word))
        for i in range(500):
            keep(("stack", i), b"]\x94")
            put(b"(")
            for depth in range(8):
                keep(("frame", i, depth), b"}\x94")
                put(b"(" + got("filename") + b"h" + bytes([memo["unknown"]]) + got("line") + number(10 * i + depth) + got("name"))
                keep(("name", i, depth), text(f"layer{i}_{depth}"))
                put(b"u")
            put(b"e")
        put(b"e")
        put(got("segments"))
        keep("no segments", b"]\x94")
        put(got("device_traces"))
        keep("traces", b"]\x94")
        put(b"(")
        keep("trace", b"]\x94")
        parts = {word: got(word) for word in words}
        stacks = [got(("stack", i)) for i in range(500)]
        live, time = {}, 1700000000000000

        def event(action, address, size, stack):
            return b"".join((b"}\x94(", parts["action"], parts[action], parts["addr"], number(address), parts["size"], number(size),
                             parts["stream"], b"K\0", parts["time_us"], number(time), parts["frames"], stack, parts["category"],
                             parts["unknown"], b"u"))

        # One round, at whose end nothing is alive, is written again and again.
        round_of_events, events = [], 0
        while events < 400000 or live:
            batch = []
            while len(batch) < 1000 and (events < 400000 or live):
                time += 3
                if len(live) > 2000 or (live and (events >= 400000 or rng.random() < 0.45)):
                    address = next(iter(live))
                    size, stack = live.pop(address)
                    batch.append(event("free_requested", address, size, stack))
                    batch.append(event("free_completed", address, size, stack))
                else:
                    address = 0x7F0000000000 + rng.randrange(1 << 24) * 512
                    if address in live:
                        continue
                    size, stack = rng.randrange(1, 1 << 22), stacks[rng.randrange(500)]
                    live[address] = (size, stack)
                    batch.append(event("alloc", address, size, stack))
            events += len(batch)
            round_of_events.append(b"(" + b"".join(batch) + b"e")
        rounds = 0
        while written < wanted or not rounds:
            for batch in round_of_events:
                put(batch)
            rounds += 1
        put(b"eu.")
    print(f"{events * rounds} events")


main()
