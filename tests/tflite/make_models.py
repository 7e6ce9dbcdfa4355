"""Models for what fetched ones lack: sizes that change, states, control flow; and graphs drawn at random.

usage: make_models.py FOLDER                          the small ones
       make_models.py FOLDER COUNT                    random_0 to random_COUNT-1
       make_models.py FOLDER NUMBER ELEMENTS          random_NUMBER with an input of so many elements
"""
import os
import random
import struct
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "models"))
from make_tflite import ADD, IF, RESHAPE, WHILE, write  # pylint: disable=wrong-import-position

CONCATENATION, LOGISTIC, RNN, LESS, SLICE = 2, 14, 24, 58, 65
CONCATENATION_OPTIONS, IF_OPTIONS, WHILE_OPTIONS = 10, 92, 93


def f32(name, *shape, **more):
    return {"name": name, "shape": list(shape), **more}


def numbers(count, step=0.25):
    return struct.pack(f"<{count}f", *[(i % 7 - 3) * step for i in range(count)])


def graph(tensors, inputs, outputs, *operators):
    return {"tensors": tensors, "inputs": inputs, "outputs": outputs,
            "operators": [{"code": code, "inputs": a, "outputs": b, **more} for code, a, b, more in operators]}


def one(codes, *graphs):
    return {"codes": codes, "subgraphs": list(graphs)}


def branch():
    """Elementwise, so that any size will do; "early" is an output that is read again."""
    tensors = [f32(n, 64) for n in ("x", "early", "b", "c", "unread", "d", "y")]
    return one([ADD, LOGISTIC], graph(tensors, [0], [6, 1], (1, [0], [1], {}), (1, [1], [2], {}), (0, [1, 2], [3], {}),
                                      (1, [3], [4], {}), (1, [3], [5], {}), (0, [5, 3], [6], {})))


def passed():
    """The input is an output too, as it is."""
    tensors = [f32(n, 64) for n in ("x", "a", "b", "y")]
    return one([ADD, LOGISTIC], graph(tensors, [0], [3, 0], (1, [0], [1], {}), (1, [1], [2], {}), (0, [1, 2], [3], {})))


def state():
    """A recurrent network: its state is a variable."""
    n = 16
    tensors = [f32("x", 1, n), f32("w", n, n, data=numbers(n * n)), f32("r", n, n, data=numbers(n * n, 0.125)),
               f32("bias", n, data=numbers(n)), f32("h", 1, n, variable=True), f32("y", 1, n), f32("z", 1, n), f32("out", 1, n)]
    return one([RNN, LOGISTIC], graph(tensors, [0], [7], (0, [0, 1, 2, 3, 4], [5], {}), (1, [5], [6], {}), (1, [6], [7], {})))


def loop():
    """while (x < limit) x = x + step, between operators of its own."""
    def scalar(name, **more):
        return f32(name, 1, **more)
    main = graph([scalar("x"), scalar("a"), scalar("b"), scalar("y"), scalar("z")], [0], [4], (1, [0], [1], {}),
                 (2, [1], [2], {"calls": [1, 2], "options_type": WHILE_OPTIONS}), (1, [2], [3], {}), (0, [2, 3], [4], {}))
    cond = graph([scalar("v"), scalar("limit", data=struct.pack("<f", 10.0)), {"name": "go", "shape": [1], "type": "bool"}],
                 [0], [2], (3, [0, 1], [2], {}))
    body = graph([scalar("v"), scalar("step", data=struct.pack("<f", 1.5)), scalar("s"), scalar("t"), scalar("next")],
                 [0], [4], (0, [0, 1], [2], {}), (1, [2], [3], {}), (0, [2, 3], [4], {}))
    return one([ADD, LOGISTIC, WHILE, LESS], main, cond, body)


def carried():
    """while (4 v < 40) v = v + step + k: the condition has operators of its own, and k goes through unchanged."""
    def scalar(name, **more):
        return f32(name, 1, **more)
    main = graph([scalar("x"), scalar("a"), scalar("k"), scalar("b"), scalar("c"), scalar("z")], [0], [5], (1, [0], [1], {}),
                 (1, [1], [2], {}), (2, [1, 2], [3, 4], {"calls": [1, 2], "options_type": WHILE_OPTIONS}), (0, [3, 4], [5], {}))
    cond = graph([scalar("v"), scalar("k"), scalar("s"), scalar("t"), scalar("limit", data=struct.pack("<f", 40.0)),
                  {"name": "go", "shape": [1], "type": "bool"}],
                 [0, 1], [5], (0, [0, 0], [2], {}), (0, [2, 2], [3], {}), (3, [3, 4], [5], {}))
    body = graph([scalar("v"), scalar("k"), scalar("step", data=struct.pack("<f", 1.5)), scalar("s"), scalar("t"), scalar("next")],
                 [0, 1], [5, 1], (0, [0, 1], [3], {}), (1, [3], [4], {}), (0, [4, 3], [5], {}))
    return one([ADD, LOGISTIC, WHILE, LESS], main, cond, body)


def choice():
    """if (x < 0.5) then logistic(x) else x + x."""
    main = graph([f32("x", 1), f32("half", 1, data=struct.pack("<f", 0.5)), {"name": "p", "shape": [1], "type": "bool"},
                  f32("y", 1), f32("z", 1)], [0], [4], (2, [0, 1], [2], {}),
                 (3, [2, 0], [3], {"calls": [1, 2], "options_type": IF_OPTIONS}), (1, [3], [4], {}))
    yes = graph([f32("v", 1), f32("w", 1), f32("u", 1)], [0], [2], (1, [0], [1], {}), (1, [1], [2], {}))
    no = graph([f32("v", 1), f32("w", 1)], [0], [1], (0, [0, 0], [1], {}))
    return one([ADD, LOGISTIC, LESS, IF], main, yes, no)


def dynamic():
    """The shape is an input: known only when the model runs."""
    tensors = [f32("x", 4), {"name": "shape", "shape": [1], "type": "i32"}, f32("a", 4), f32("b", 4), f32("y", 4)]
    return one([RESHAPE, LOGISTIC], graph(tensors, [0, 1], [4], (1, [0], [2], {}), (0, [2, 1], [3], {}), (1, [3], [4], {})))


def single():
    """One operator: the first is the last."""
    return one([LOGISTIC], graph([f32("x", 64), f32("y", 64)], [0], [1], (0, [0], [1], {})))


def drawn(number, elements):
    """Slices, sums and pieces put together in any order, so that sizes and lives are of all kinds."""
    rng = random.Random(number)
    unit = elements // 64
    tensors, operators, sizes = [f32("x", elements)], [], {0: 64}

    def constant(value):
        tensors.append({"name": f"c{len(tensors)}", "shape": [1], "type": "i32", "data": struct.pack("<i", value)})
        return len(tensors) - 1

    def result(size):
        tensors.append(f32(f"t{len(tensors)}", size * unit))
        sizes[len(tensors) - 1] = size
        return len(tensors) - 1

    def draw():
        read = {i for _, inputs, _, _ in operators for i in inputs}
        fresh = [i for i in sizes if i not in read]
        return rng.choice(fresh if fresh and rng.random() < 0.7 else list(sizes)[-6:])

    for _ in range(rng.randrange(8, 40)):
        a = draw()
        kind = rng.choice(("slice", "slice", "join", "curve"))
        if kind == "slice" and sizes[a] > 1:
            size = rng.randrange(1, sizes[a])
            begin = rng.randrange(sizes[a] - size + 1)
            inputs = [a, constant(begin * unit), constant(size * unit)]
            operators.append((2, inputs, [result(size)], {}))
        elif kind == "join":
            b = draw()
            if sizes[a] + sizes[b] <= 96:
                operators.append((3, [a, b], [result(sizes[a] + sizes[b])], {"calls": [0], "options_type": CONCATENATION_OPTIONS}))
        else:
            operators.append((1, [a], [result(sizes[a])], {}))
    read = {i for _, inputs, _, _ in operators for i in inputs}
    made = list(sizes)[1:]
    outputs = sorted({i for i in made if i not in read} | {rng.choice(made)})  # nothing is made in vain; one may be read again
    return one([ADD, LOGISTIC, SLICE, CONCATENATION], graph(tensors, [0], outputs, *operators))


def save(name, model):
    os.makedirs(sys.argv[1], exist_ok=True)
    with open(os.path.join(sys.argv[1], name + ".tflite"), "wb") as file:
        file.write(write(model))


if len(sys.argv) == 2:
    for make in (branch, passed, state, loop, carried, choice, dynamic, single):
        save(make.__name__, make())
elif len(sys.argv) == 3:
    for i in range(int(sys.argv[2])):
        save(f"random_{i}", drawn(i, 1024))
else:
    save(f"random_{sys.argv[2]}", drawn(int(sys.argv[2]), int(sys.argv[3])))
