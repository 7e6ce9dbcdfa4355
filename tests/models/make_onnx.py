"""Small ONNX models, written byte by byte: no library that reads or writes protobuf is asked."""
import struct

FLOAT, UINT8, INT32, INT64, BOOL = 1, 2, 6, 7, 9


def varint(n):
    n &= 2**64 - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def value_info(name, shape, kind=FLOAT):
    """A shape of None is left out; a dimension is a number, a symbol, or None."""
    dims = b"".join(data(1, b"" if d is None else data(2, d) if isinstance(d, str) else number(1, d)) for d in shape or [])
    tensor = number(1, kind) + (data(2, dims) if shape is not None else b"")
    return data(1, name) + data(2, data(1, tensor))


def tensor(name, values, shape=None, kind=INT64, raw=True):
    shape = [len(values)] if shape is None else shape
    out = b"".join(number(1, d) for d in shape) + number(2, kind) + data(8, name)
    if kind == FLOAT:
        return out + (data(9, struct.pack(f"<{len(values)}f", *values)) if raw else data(4, struct.pack(f"<{len(values)}f", *values)))
    if raw:
        return out + data(9, struct.pack(f"<{len(values)}q", *values))
    return out + data(7, b"".join(varint(v) for v in values))


def attribute(name, value):
    out = data(1, name)
    if isinstance(value, int):
        return out + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return out + data(4, value) + number(20, 3)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return out + data(7, struct.pack(f"<{len(value)}f", *value)) + number(20, 6)
    if isinstance(value, list):
        return out + b"".join(number(8, v) for v in value) + number(20, 7)
    kind, message = value
    return out + data({"tensor": 5, "graph": 6}[kind], message)


def refers(name, to):
    """An attribute of a function's node that is the caller's `to`."""
    return data(5, data(1, name) + data(21, to))


def function(name, inputs, outputs, nodes, domain="own", defaults=None):
    return (data(1, name) + b"".join(data(4, i) for i in inputs) + b"".join(data(5, o) for o in outputs)
            + b"".join(data(7, n) for n in nodes) + data(10, domain)
            + b"".join(data(11, attribute(key, value)) for key, value in (defaults or {}).items()))


def node(kind, inputs, outputs, domain="", **attributes):
    return (b"".join(data(1, i) for i in inputs) + b"".join(data(2, o) for o in outputs) + data(3, f"the {kind}") + data(4, kind)
            + (data(7, domain) if domain else b"") + b"".join(data(5, attribute(name, value)) for name, value in attributes.items()))


def graph(nodes, inputs, outputs, initializers=(), infos=()):
    return (b"".join(data(1, n) for n in nodes) + data(2, "g") + b"".join(data(5, t) for t in initializers)
            + b"".join(data(11, value_info(*v)) for v in inputs) + b"".join(data(12, value_info(*v)) for v in outputs)
            + b"".join(data(13, value_info(*v)) for v in infos))


def model(*parts, functions=(), opset=13, **more):
    return (number(1, 8) + data(2, "a test") + data(7, graph(*parts, **more)) + data(8, number(2, opset))
            + b"".join(data(25, f) for f in functions))
