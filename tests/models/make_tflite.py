"""Small TFLite models, written byte by byte: no library that reads or writes flatbuffers is asked."""
import struct

TYPES = {"f32": 0, "f16": 1, "i32": 2, "u8": 3, "i64": 4, "string": 5, "bool": 6, "i16": 7, "i8": 9, "i4": 17, "i2": 19}
ADD, CONV, DEQUANTIZE, RELU, RESHAPE, CUSTOM, IF, WHILE, CALL_ONCE = 0, 3, 6, 19, 22, 32, 118, 119, 129


class Table:
    """Fields by number: ("B"|"I"|"i"|"Q", number), or a Table, str, bytes or list (of numbers or Tables)."""

    def __init__(self, **fields):
        self.fields = {int(key[1:]): value for key, value in fields.items() if value is not None}


class Writer:
    def __init__(self):
        self.out = bytearray(b"\0\0\0\0TFL3")

    def align(self, n, extra=0):
        while (len(self.out) + extra) % n:
            self.out.append(0)

    def patch(self, at, to):
        self.out[at:at + 4] = struct.pack("<I", to - at)

    def put(self, value):
        if isinstance(value, Table):
            return self.table(value)
        if isinstance(value, (str, bytes)):
            data = value.encode() if isinstance(value, str) else value
            self.align(16, 4)
            at = len(self.out)
            self.out += struct.pack("<I", len(data)) + data + b"\0"
            return at
        self.align(4)
        at = len(self.out)
        self.out += struct.pack("<I", len(value))
        if value and isinstance(value[0], Table):
            slots = len(self.out)
            self.out += bytes(4 * len(value))
            for i, item in enumerate(value):
                self.patch(slots + 4 * i, self.put(item))
        else:
            self.out += struct.pack(f"<{len(value)}i", *value)
        return at

    def table(self, table):
        place, slots, at = 4, {}, {}
        for number, value in sorted(table.fields.items()):
            size = struct.calcsize(value[0]) if isinstance(value, tuple) else 4
            place = (place + size - 1) // size * size
            slots[number], place = place, place + size
        count = max(slots, default=-1) + 1
        self.align(8)
        vtable = len(self.out)
        self.out += struct.pack("<HH", 4 + 2 * count, place)
        self.out += b"".join(struct.pack("<H", slots.get(i, 0)) for i in range(count))
        self.align(8)
        start = len(self.out)
        self.out += struct.pack("<i", start - vtable) + bytes(place - 4)
        for number, value in table.fields.items():
            if isinstance(value, tuple):
                size = struct.calcsize(value[0])
                self.out[start + slots[number]:start + slots[number] + size] = struct.pack("<" + value[0], value[1])
            else:
                at[number] = value
        for number, value in at.items():
            self.patch(start + slots[number], self.put(value))
        return start


def write(model):
    """model: {"codes": [number or name], "subgraphs": [{tensors, inputs, outputs, operators}], "data": [bytes]}."""
    buffers, external = [Table()], []

    def tensor(t):
        index = 0
        if "data" in t:
            index = len(buffers)
            buffers.append(Table(f0=t["data"]))
        elif "external" in t:
            index = len(buffers)
            external.append((index, t["external"]))
            buffers.append(Table(f1=("Q", 2), f2=("Q", len(t["external"]))))
        elif t.get("own_empty_buffer"):
            index = len(buffers)
            buffers.append(Table())
        scales = t.get("scales")
        return Table(f0=t["shape"], f1=("b", TYPES[t.get("type", "f32")]), f2=("I", index), f3=t.get("name"),
                     f4=Table(f2=[0] * scales) if scales else None, f5=("B", 1) if t.get("variable") else None,
                     f7=t.get("signature"))

    def code(c):
        if isinstance(c, str):
            return Table(f0=("b", CUSTOM), f1=c, f3=("i", CUSTOM))
        return Table(f0=("b", min(c, 127)), f3=("i", c))

    def operator(o):
        options = Table(**{f"f{i}": ("i", s) for i, s in enumerate(o["calls"])}) if "calls" in o else None
        return Table(f0=("I", o["code"]), f1=o["inputs"], f2=o["outputs"], f3=("B", o.get("options_type", 1)) if options else None, f4=options)

    def subgraph(s):
        return Table(f0=[tensor(t) for t in s["tensors"]], f1=s["inputs"], f2=s["outputs"],
                     f3=[operator(o) for o in s["operators"]], f4=s.get("name"))

    subgraphs = [subgraph(s) for s in model["subgraphs"]]
    w = Writer()
    root = w.table(Table(f0=("I", 3), f1=[code(c) for c in model["codes"]], f2=subgraphs, f3="made by a test", f4=buffers,
                         f6=[Table(f0="other", f1=("I", 0))] if model.get("metadata") else None))
    w.out[0:4] = struct.pack("<I", root)
    for index, data in external:
        w.align(64)
        offset = len(w.out)
        w.out += data
        # the placeholder 2 is the only such number in the file that is followed by this length
        wanted = struct.pack("<QQ", 2, len(data))
        at = bytes(w.out).index(wanted)
        w.out[at:at + 8] = struct.pack("<Q", offset)
    return bytes(w.out)


def chain(sizes, **more):
    """A model that is a chain of RELU over tensors of these sizes in bytes."""
    tensors = [{"name": f"t{i}", "shape": [size], "type": "i8"} for i, size in enumerate(sizes)]
    operators = [{"code": 0, "inputs": [i], "outputs": [i + 1]} for i in range(len(sizes) - 1)]
    return {"codes": [RELU], "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": [len(sizes) - 1],
                                            "operators": operators}], **more}
