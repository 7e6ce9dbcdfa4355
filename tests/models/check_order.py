"""berth plan --reorder on hand-made models: against every order there is, never worse, states in their order, and written models.

usage: check_order.py BERTH
"""
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tflite as make  # noqa: E402
from make_onnx import model as onnx_model, node, tensor  # noqa: E402
from run_berth import folder, plan_json, run, run_cases, save  # noqa: E402

ROUND = 16


def plan(model, *words):
    return plan_json(save(make.write(model), "m.tflite"), *words)


def random_model(rng, operators, width):
    """Operators over int8 tensors; each reads some of the last `width` tensors, weights too, and makes one or two."""
    tensors = [{"name": "x", "shape": [rng.randrange(1, 300)], "type": "i8"}]
    ops = []
    for k in range(operators):
        inputs = sorted({rng.randrange(max(0, len(tensors) - width), len(tensors)) for _ in range(rng.randrange(1, 3))})
        if rng.random() < 0.2:  # made of a constant alone
            tensors.append({"name": f"w{k}", "shape": [8], "type": "i8", "data": bytes(8)})
            inputs = [len(tensors) - 1]
        outputs = list(range(len(tensors), len(tensors) + rng.choice([1, 1, 1, 2])))
        tensors += [{"name": f"t{k}.{i}", "shape": [rng.randrange(1, 300)], "type": "i8"} for i in outputs]
        ops.append({"code": 0, "inputs": inputs, "outputs": outputs})
    made = [i for op in ops for i in op["outputs"]]
    return {"codes": [make.CONV], "subgraphs": [{"tensors": tensors, "inputs": [0], "operators": ops,
                                                "outputs": sorted({made[-1], rng.choice(made)})}]}


def sizes_of(graph):
    return [0 if "data" in t else (t["shape"][0] + ROUND - 1) // ROUND * ROUND for t in graph["tensors"]]


def fullest(graph, order):
    """The most that is live at once when operators run in this order."""
    sizes, ops = sizes_of(graph), [graph["operators"][k] for k in order]
    last = {i: t for t, op in enumerate(ops) for i in op["inputs"] + op["outputs"]}
    last.update({i: len(ops) for i in graph["outputs"]})
    there = set(graph["inputs"])
    most = sum(sizes[i] for i in there)
    there &= set(last)
    for t, op in enumerate(ops):
        there |= set(op["inputs"]) | set(op["outputs"])
        most = max(most, sum(sizes[i] for i in there))
        there = {i for i in there if last[i] > t}
    return most


def least(graph):
    """Over every order there is: sets of operators that are done, each with the least that reaches it."""
    ops, sizes = graph["operators"], sizes_of(graph)
    maker = {i: k for k, op in enumerate(ops) for i in op["outputs"]}
    needs = [{maker[i] for i in op["inputs"] if i in maker} for op in ops]
    users = {}
    for k, op in enumerate(ops):
        for i in op["inputs"] + op["outputs"]:
            users.setdefault(i, set()).add(k)

    def live(done):
        return {i for i in users if (maker.get(i) in done or i in graph["inputs"] or "data" in graph["tensors"][i])
                and (i in graph["outputs"] or users[i] - done)}

    best = {frozenset(): sum(sizes[i] for i in graph["inputs"])}
    for _ in ops:
        after = {}
        for done, most in best.items():
            there = live(done)
            for k, op in enumerate(ops):
                if k not in done and needs[k] <= done:
                    now = max(most, sum(sizes[i] for i in there | set(op["inputs"]) | set(op["outputs"])))
                    key = done | {k}
                    after[key] = min(now, after.get(key, now))
        best = after
    return min(best.values())


def is_valid(graph, order):
    made = set(graph["inputs"]) | {i for i, t in enumerate(graph["tensors"]) if "data" in t}
    assert sorted(order) == list(range(len(graph["operators"]))), order
    for k in order:
        assert set(graph["operators"][k]["inputs"]) <= made, (order, k)
        made |= set(graph["operators"][k]["outputs"])


def order_of(answer, graph):
    if answer["order"] is None:
        return list(range(len(graph["operators"])))
    return [o["operator"] for o in answer["order"]]


def test_against_every_order():
    rng, gained = random.Random(5), 0
    for _ in range(150):
        model = random_model(rng, rng.randrange(2, 11), rng.choice([2, 5, 20]))
        graph, answer = model["subgraphs"][0], plan(model, "--reorder")
        order = order_of(answer, graph)
        is_valid(graph, order)
        wanted = least(graph)
        assert fullest(graph, order) <= answer["peak"] <= answer["file_order_peak"]
        assert answer["peak"] >= wanted and fullest(graph, range(len(order))) <= answer["file_order_peak"]
        if answer["order_proven"]:
            assert answer["peak"] == wanted, (answer["peak"], wanted)
        elif answer["peak"] > wanted:  # then fragments are to blame, not the order
            assert not answer["proven_optimal"] or fullest(graph, order) == wanted or answer["order"] is None, answer
        gained += answer["peak"] < answer["file_order_peak"]
    assert gained >= 30, gained


def test_larger_never_worse():
    rng, gained, proven = random.Random(6), 0, 0
    for count, times in ((40, 4), (80, 3), (300, 1)):
        for _ in range(times):
            model = random_model(rng, count, rng.choice([4, 15, 60]))
            graph, answer = model["subgraphs"][0], plan(model, "--reorder", "--effort", "fast")
            order = order_of(answer, graph)
            is_valid(graph, order)
            assert fullest(graph, order) <= answer["peak"] <= answer["file_order_peak"]
            gained += answer["peak"] < answer["file_order_peak"]
            proven += answer["order_proven"]
    assert gained >= 6 and proven >= 3, (gained, proven)


def branches(count, big=4096):
    """All branches grow before the first one shrinks: the worst order."""
    tensors = [{"name": "x", "shape": [64], "type": "i8"}]
    tensors += [{"name": f"big{k}", "shape": [big], "type": "i8"} for k in range(count)]
    tensors += [{"name": f"small{k}", "shape": [16], "type": "i8"} for k in range(count)]
    tensors += [{"name": "y", "shape": [16], "type": "i8"}]
    ops = [{"code": 0, "inputs": [0], "outputs": [1 + k]} for k in range(count)]
    ops += [{"code": 0, "inputs": [1 + k], "outputs": [1 + count + k]} for k in range(count)]
    ops += [{"code": 0, "inputs": list(range(1 + count, 1 + 2 * count)), "outputs": [1 + 2 * count]}]
    return {"codes": [make.CONV], "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": [1 + 2 * count],
                                                "operators": ops}]}


def test_branches():
    for count in (2, 6, 30, 300):
        answer = plan(branches(count), "--reorder", "--effort", "fast")
        assert answer["file_order_peak"] >= count * 4096, answer["file_order_peak"]
        assert answer["peak"] <= 64 + 4096 + 16 * count, (count, answer["peak"])
        assert answer["order_proven"] or count > 6, count
    code, out, _ = run("plan", save(make.write(branches(6)), "m.tflite"), "--reorder")
    assert code == 0 and "operators are moved, and no order takes less" in out, out
    code, out, _ = run("plan", save(make.write(make.chain([64, 64])), "m.tflite"), "--reorder")
    assert code == 0 and "kept: no order takes less" in out, out


def test_states_stay():
    """A custom operator may do anything: two of them keep their order, whatever it costs."""
    model = branches(2)
    model["codes"] = ["mine"]
    answer = plan(model, "--reorder")
    assert answer["order"] is None and answer["peak"] == answer["file_order_peak"]
    model = branches(2)
    model["codes"].append("mine")
    graph = model["subgraphs"][0]
    graph["operators"][1]["code"] = graph["operators"][2]["code"] = 1
    order = order_of(plan(model, "--reorder"), graph)
    assert order.index(1) < order.index(2), order


def test_made_twice():
    """A tensor that two operators make: all that touch it stay as they are."""
    model = branches(2)
    graph = model["subgraphs"][0]
    graph["operators"][1]["outputs"] = [1]
    graph["operators"][3]["inputs"] = [1]
    order = order_of(plan(model, "--reorder"), graph)
    assert [k for k in order if k < 4] == [0, 1, 2, 3], order


def test_subgraphs():
    """The order inside a called graph counts too."""
    model = branches(4)
    model["codes"].append(make.IF)
    outer = {"tensors": [{"name": n, "shape": [64], "type": "i8"} for n in ("c", "x", "y")], "inputs": [0, 1], "outputs": [2],
             "operators": [{"code": 1, "inputs": [0, 1], "outputs": [2], "calls": [1, 2]}]}
    model["subgraphs"] = [outer] + model["subgraphs"] + make.chain([64, 64])["subgraphs"]
    answer = plan(model, "--reorder")
    assert answer["peak"] < answer["file_order_peak"] and not answer["order_proven"]
    out = os.path.join(folder, "out.tflite")
    assert run("plan", save(make.write(model), "m.tflite"), "--reorder", "--write", out)[0] == 0
    assert plan_json(out)["peak"] == answer["peak"]


def test_written():
    for count in (3, 12):
        model = branches(count)
        out, path = os.path.join(folder, "out.tflite"), save(make.write(model), "m.tflite")
        answer = plan_json(path, "--reorder", "--write", out)
        after = plan_json(out)
        assert after["peak"] == answer["peak"] < answer["file_order_peak"], (after["peak"], answer["peak"])
        assert after["tensors"] == answer["tensors"]
        assert run("check", out)[0] == 0
        again = plan_json(out, "--reorder")
        assert again["order"] is None and again["peak"] == answer["peak"]


def test_scratch():
    """What kernels need counts where they run: the order must not put the two large scratches beside the large tensor."""
    model = branches(3)
    rows = save(b"operator,bytes\n0,8K\n6,4K\n", "scratch.csv")
    answer = plan(model, "--reorder", "--scratch", rows)
    assert answer["order_proven"] and answer["peak"] == 64 + 4096 + 8192, answer["peak"]


def test_inplace():
    model = branches(4)
    model["codes"] = [make.RELU]
    answer = plan(model, "--reorder", "--inplace")
    assert answer["peak"] <= plan(model, "--inplace")["peak"] and not answer["order_proven"]


def test_onnx():
    nodes = [node("Expand", ["x", "s"], [f"b{k}"]) for k in range(3)]
    nodes += [node("ReduceMax", [f"b{k}"], [f"m{k}"], keepdims=0) for k in range(3)]
    nodes += [node("Sum", [f"m{k}" for k in range(3)], ["y"])]
    made = onnx_model(nodes, [("x", [1])], [("y", None, 0)], [tensor("s", [1024])])
    answer = plan_json(save(made, "m.onnx"), "--reorder")
    assert answer["file_order_peak"] > 3 * 4096 and answer["peak"] < 2 * 4096 and answer["order_proven"], answer
    nodes[0] = node("RandomUniformLike", ["s2"], ["b0"])
    nodes[2] = node("RandomUniformLike", ["s2"], ["b2"])
    made = onnx_model(nodes, [("x", [1]), ("s2", [1024])], [("y", None, 0)], [tensor("s", [1024])],
                      infos=[("b0", [1024]), ("b2", [1024])])
    order = [o["operator"] for o in plan_json(save(made, "m.onnx"), "--reorder")["order"]]
    assert order.index(0) < order.index(2), order


def test_refused():
    code, _, err = run("plan", save(b"id,lower,upper,size\na,0,1,4\n", "x.csv"), "--reorder")
    assert code == 2 and "for models" in err, err


run_cases(globals())
