"""berth on hand-made TFLite models: lives, sizes, kinds, the runtime's own planner, what is written, and hostile bytes.

usage: check_tflite.py BERTH
"""
import json
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tflite as make  # noqa: E402
from run_berth import complaint_of, folder, plan_json, run, run_cases  # noqa: E402
import run_berth  # noqa: E402


def save(data, name="m.tflite"):
    return run_berth.save(data, name)


def plan(model, *words, code=0):
    return plan_json(save(make.write(model)), *words, code=code)


def complaint(model, *words, code=3):
    return complaint_of(save(make.write(model) if isinstance(model, dict) else model), *words, code=code)


def lives(answer):
    return {(t["subgraph"], t["index"]): (t["lower"], t["upper"], t["size"]) for t in answer["tensors"]}


# ---- An independent count of lives, and of the greedy planner ------------------------------------------

BYTES = {"f32": 4, "f16": 2, "i32": 4, "u8": 1, "i64": 8, "bool": 1, "i16": 2, "i8": 1, "i4": 1, "i2": 1}


def expected(model):
    first, last, time = {}, {}, [0]

    def walk(s):
        graph = model["subgraphs"][s]
        for i in graph["inputs"] + graph["outputs"]:
            first[s, i] = last[s, i] = time[0]
        for op in graph["operators"]:
            time[0] += 1
            for i in op["outputs"]:
                first[s, i] = time[0]
            for called in op.get("calls", []):
                time[0] += 1
                walk(called)
            for i in op["inputs"] + op["outputs"]:
                if i >= 0:
                    last[s, i] = time[0]
        for i in graph["outputs"]:
            last[s, i] = time[0]

    walk(0)
    result = {}
    for s, graph in enumerate(model["subgraphs"]):
        for i, t in enumerate(graph["tensors"]):
            size = BYTES[t.get("type", "f32")]
            for d in t["shape"]:
                size *= d
            if size and not {"data", "external", "variable"} & set(t):
                result[s, i] = (first.get((s, i), -1), last.get((s, i), -1) + 1, (size + 15) // 16 * 16)
    return result


def greedy(rows):
    placed, order = [], sorted(range(len(rows)), key=lambda k: (-rows[k][2], -k))
    for k in order:
        lower, upper, size = rows[k]
        at = 0
        for offset, other in sorted(placed):
            if other[0] < upper and lower < other[1]:
                if offset - at >= size:
                    break
                at = max(at, offset + other[2])
        placed.append((at, rows[k]))
    return max((offset + row[2] for offset, row in placed), default=0)


def agrees(model):
    answer, wanted = plan(model), expected(model)
    assert lives(answer) == wanted, (lives(answer), wanted)
    assert answer["runtime_bytes"] == greedy([wanted[key] for key in sorted(wanted)]), answer["runtime_bytes"]
    return answer


def random_model(rng):
    count = rng.randrange(2, 30)
    tensors = [{"name": f"t{i}", "shape": [rng.randrange(1, 200)], "type": rng.choice(["i8", "f32", "i16"])}
               for i in range(count)]
    operators = [{"code": 0, "inputs": sorted({rng.randrange(i) for _ in range(rng.randrange(1, 4))}), "outputs": [i]}
                 for i in range(1, count)]
    outputs = sorted({count - 1, rng.randrange(count)})
    return {"codes": [make.ADD], "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": outputs,
                                               "operators": operators}]}


# ---- Cases ----------------------------------------------------------------------------------------------

def test_chain():
    answer = agrees(make.chain([100, 200, 48, 16]))
    assert answer["peak"] == 112 + 208 and answer["proven_optimal"], answer
    assert answer["peak_operator"] == "RELU, operator 0", answer["peak_operator"]
    code, out, _ = run("plan", save(make.write(make.chain([100, 200, 48, 16]))))
    assert code == 0 and "what TensorFlow Lite Micro's own planner takes" in out and "not modelled" in out
    for verb in ("show", "convert"):
        code, out, err = run(verb, save(make.write(make.chain([100, 200, 48, 16]))))
        assert code == 0 and out, err
    code, out, err = run("view", "--json", save(make.write(make.chain([100, 200, 48, 16]))))
    space = json.loads(out)["spaces"][0]
    for words in (["what-if"], ["explain-oom", "--limit", "300"], ["diff", save(make.write(make.chain([100, 200])), "other.tflite")]):
        code, answer, err = run(*words, save(make.write(make.chain([100, 200, 48, 16]))), "--runtime", "micro")
        assert code == 0 and answer, err
    assert code == 0 and space["blocks"] == 4 and space["plan"]["peak_bytes"] == 112 + 208, err


def test_random_graphs():
    rng = random.Random(1)
    for _ in range(60):
        agrees(random_model(rng))


def test_capacity():
    path = save(make.write(make.chain([100, 200, 48])))
    assert run("plan", path, "--capacity", "320")[0] == 0
    code, _, err = run("plan", path, "--capacity", "319")
    assert code == 1 and "does not fit" in err, err


def test_kinds():
    model = make.chain([64, 64, 64])
    graph = model["subgraphs"][0]
    graph["tensors"] += [{"name": "weights", "shape": [1000], "type": "i8", "data": bytes(1000), "scales": 5},
                         {"name": "outside", "shape": [99], "type": "i8", "external": bytes(range(99))},
                         {"name": "state", "shape": [40], "type": "i8", "variable": True},
                         {"name": "unused", "shape": [30], "type": "i8", "own_empty_buffer": True},
                         {"name": "empty", "shape": [0], "type": "i8"},
                         {"name": "words", "shape": [3], "type": "string"},
                         {"name": "scalar", "shape": [], "type": "f32"}]
    graph["operators"][0]["inputs"] += [3, 4, 5, -1]
    graph["operators"][1]["inputs"] += [9]
    BYTES["string"] = 0
    answer = agrees(model)
    assert answer["constant_bytes"] == 1099 and answer["variable_bytes"] == 48, answer
    assert lives(answer)[0, 6] == (-1, 0, 32) and lives(answer)[0, 9] == (-1, 3, 16)


def test_small_elements():
    model = make.chain([33, 33])
    for t in model["subgraphs"][0]["tensors"]:
        t["type"] = "i4"
    assert lives(plan(model))[0, 0][2] == 48
    assert lives(plan(model, "--runtime", "tflite"))[0, 0][2] == 17
    for t in model["subgraphs"][0]["tensors"]:
        t["type"] = "i2"
    assert lives(plan(model, "--runtime", "tflite"))[0, 0][2] == 9


def control_flow():
    one = lambda shapes: [{"name": "same", "shape": [n], "type": "i8"} for n in shapes]
    return {"codes": [make.RELU, make.IF, make.WHILE, make.CALL_ONCE], "subgraphs": [
        {"tensors": one([64, 64, 64, 64]), "inputs": [0], "outputs": [3], "operators": [
            {"code": 3, "inputs": [], "outputs": [], "calls": [3]},
            {"code": 1, "inputs": [0, 0], "outputs": [1], "calls": [1, 2]},
            {"code": 2, "inputs": [1], "outputs": [2], "calls": [4, 2]},
            {"code": 0, "inputs": [2], "outputs": [3]}]},
        {"tensors": one([64, 128]), "inputs": [0], "outputs": [1], "operators": [{"code": 0, "inputs": [0], "outputs": [1]}]},
        {"tensors": one([64, 256, 32]), "inputs": [0], "outputs": [2], "operators": [
            {"code": 0, "inputs": [0], "outputs": [1]}, {"code": 0, "inputs": [1], "outputs": [2]}]},
        {"tensors": one([512]), "inputs": [], "outputs": [], "operators": [{"code": 0, "inputs": [], "outputs": [0]}]},
        {"tensors": one([64, 1]), "inputs": [0], "outputs": [1], "operators": [{"code": 0, "inputs": [0], "outputs": [1]}]}]}


def test_control_flow():
    model, wanted = control_flow(), None
    answer = plan(model)
    wanted = expected(model)
    for key, life in lives(answer).items():
        if key[0] == 2:  # called twice: live from the first call to the last
            assert life[0] < wanted[key][0] and life[1:] == wanted[key][1:], (key, life, wanted[key])
        else:
            assert life == wanted[key], (key, life, wanted[key])
    assert answer["runtime_bytes"] == greedy([wanted[key] for key in sorted(wanted)])
    model["subgraphs"][1]["operators"][0].update(code=1, calls=[0, 0])
    assert "calls itself" in complaint(model)


def test_many_calls():
    """Each subgraph calls the next one twice: two to the fortieth steps."""
    one = [{"name": "x", "shape": [8], "type": "i8"}]
    graphs = [{"tensors": one, "inputs": [], "outputs": [], "operators": [{"code": 0, "inputs": [], "outputs": [], "calls": [s + 1, s + 1]}]}
              for s in range(40)]
    graphs.append({"tensors": one, "inputs": [], "outputs": [], "operators": []})
    assert "steps" in complaint({"codes": [make.IF], "subgraphs": graphs})


def test_large_interpreter():
    model = make.chain([64, 100, 64, 64])
    model["codes"].append(make.DEQUANTIZE)
    graph = model["subgraphs"][0]
    graph["tensors"] += [{"name": "q", "shape": [8], "type": "i8", "data": bytes(8)}, {"name": "w", "shape": [8], "type": "f32"}]
    graph["operators"].insert(0, {"code": 1, "inputs": [4], "outputs": [5]})
    graph["operators"][1]["inputs"].append(5)
    micro, large = plan(model), plan(model, "--runtime", "tflite")
    assert (0, 5) in lives(micro) and (0, 5) not in lives(large) and large["persistent_bytes"] == 32
    assert lives(large)[0, 0] == (0, 5, 64) and lives(large)[0, 1][2] == 100
    assert all(t["offset"] % 64 == 0 for t in large["tensors"])


def test_dims():
    model = make.chain([10, 10])
    for t in model["subgraphs"][0]["tensors"]:
        t.update(shape=[1, 10], signature=[-1, 10])
    assert lives(plan(model))[0, 0][2] == 16
    assert lives(plan(model, "--dim", "*=8"))[0, 0][2] == 80
    mixed = lives(plan(model, "--dim", "*=8", "--dim", "t0:0=4"))
    assert mixed[0, 0][2] == 48 and mixed[0, 1][2] == 80
    assert "no such dimension" in complaint(model, "--dim", "t0:1=4", code=2)
    assert "--dim wants" in complaint(model, "--dim", "t0", code=2)
    assert "is no model" in run("plan", save(b"id,lower,upper,size\na,0,1,4\n", "x.csv"), "--dim", "a=1")[2]


def test_written():
    for model in (make.chain([100, 200, 48, 16]), make.chain([64, 32, 64], metadata=True)):
        graph = model["subgraphs"][0]
        graph["tensors"].append({"name": "outside", "shape": [99], "type": "i8", "external": bytes(range(99))})
        graph["operators"][0]["inputs"].append(len(graph["tensors"]) - 1)
        source, out = save(make.write(model)), os.path.join(folder, "out.tflite")
        before = json.loads(run("plan", source, "--json", "--write", out)[1])
        after = json.loads(run("plan", out, "--json")[1])
        assert before["tensors"] == after["tensors"] and before["constant_bytes"] == after["constant_bytes"]
        code, text, err = run("check", out)
        assert code == 0 and "valid" in text, (text, err)
        with open(out, "rb") as file:
            data = file.read()
        count = len(graph["tensors"])
        at = data.index(struct.pack("<III", 1, 0, count))
        assert at % 16 == 0
        offsets = struct.unpack_from(f"<{count}i", data, at + 12)
        wanted = {t["index"]: t["offset"] for t in before["tensors"]}
        assert list(offsets) == [wanted.get(i, -1) for i in range(count)], offsets
        # what lies behind the flatbuffer is still found
        moved = data.index(struct.pack("<Q", data.index(bytes(range(99)))))
        assert struct.unpack_from("<QQ", data, moved)[1] == 99
        again = os.path.join(folder, "again.tflite")
        assert run("plan", out, "--write", again)[0] == 0
        with open(again, "rb") as file:
            assert file.read() == data
    code, _, err = run("plan", save(make.write(control_flow())), "--write", out)
    assert code == 0, err
    with open(out, "rb") as file:
        data = file.read()
    assert struct.unpack_from("<4i", data, data.index(struct.pack("<III", 1, 0, 12)) + 12)[:1] == (-1,)


def test_inplace():
    model = make.chain([64, 64, 64, 32])
    model["subgraphs"][0]["operators"][2]["inputs"] = [0, 2]  # the first is needed to the end
    assert plan(model)["peak"] == 192 and plan(model, "--inplace")["peak"] == 160
    places = {t["index"]: t["offset"] for t in plan(model, "--inplace")["tensors"]}
    assert places[1] == places[2] != places[0]
    model["codes"] = [make.CONV]
    assert plan(model, "--inplace")["peak"] == 192


def test_scratch():
    model = make.chain([100, 200, 48, 16])
    rows = save(b"operator,bytes\n1,1000\n\n 2 , 1.5K\n1,8\n", "scratch.csv")
    answer = plan(model, "--scratch", rows)
    assert [(s["operator"], s["lower"], s["upper"], s["size"]) for s in answer["scratch"]] == [
        (1, 2, 3, 1008), (2, 3, 4, 1536), (1, 2, 3, 16)], answer["scratch"]
    assert answer["scratch_bytes"] == 1008 + 1536 + 16 and answer["peak"] == max(208 + 48 + 1024, 48 + 16 + 1536)
    wanted = expected(model)
    assert answer["runtime_bytes"] == greedy([wanted[key] for key in sorted(wanted)] + [(2, 3, 1008), (3, 4, 1536), (2, 3, 16)])
    code, out, _ = run("plan", save(make.write(model)), "--scratch", rows)
    assert code == 0 and "of kernels, 3 buffers: part of the plan" in out, out
    written = os.path.join(folder, "out.tflite")
    assert run("plan", save(make.write(model)), "--scratch", rows, "--write", written)[0] == 0
    carried, check = plan_json(written), run("check", written)
    assert len(carried["tensors"]) == 4 and check[0] == 0, check
    # in a subgraph that is called: by its own numbers
    inner = control_flow()
    rows = save(b"subgraph,operator,note,bytes\n2,1,x,64\n,0,y,32\n", "scratch.csv")
    assert [(s["subgraph"], s["operator"]) for s in plan(inner, "--scratch", rows)["scratch"]] == [(2, 1), (0, 0)]
    for text, words in ((b"operator,size\n", "line 1: the header must name"), (b"operator,bytes\n7,1\n", "line 2, column `operator`: '7'"),
                        (b"operator,bytes\n0,many\n", "line 2, column `bytes`: 'many'"), (b"operator,bytes\n0\n", "as many fields"),
                        (b"operator,bytes,subgraph\n0,1,9\n", "column `subgraph`: '9'"), (b"operator,bytes\n0,8E\n", "more than can be")):
        assert words in complaint(model, "--scratch", save(text, "scratch.csv")), words
    assert "cannot be opened" in complaint(model, "--scratch", os.path.join(folder, "none.csv"), code=4)
    assert "for models" in run("plan", save(b"id,lower,upper,size\na,0,1,4\n", "x.csv"), "--scratch", "x")[2]


def test_header():
    out = os.path.join(folder, "plan.h")
    assert run("plan", save(make.write(make.chain([100, 200, 48]))), "-o", out)[0] == 0
    for arena, works in ((320, True), (319, False)):
        source = save(f'#define BERTH_PLAN_ARENA_BYTES {arena}\n#include "plan.h"\n'
                      "int main(void) { return berth_plan_offsets[0] > BERTH_PLAN_BYTES; }\n".encode(), "x.c")
        done = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Werror", "-fsyntax-only", source],
                              capture_output=True)
        assert (done.returncode == 0) == works, done.stderr
    # Several in one program: each has its file's name.
    assert run("plan", save(make.write(make.chain([64, 64]))), "-o", os.path.join(folder, "Mel-2.small.h"))[0] == 0
    source = save(b'#include "plan.h"\n#include "Mel-2.small.h"\n'
                  b"_Static_assert(BERTH_PLAN_BUFFERS == 3 && BERTH_MEL_2_SMALL_BUFFERS == 2, \"\");\n"
                  b"int main(void) { return berth_plan_offsets[0] == berth_mel_2_small_offsets[0]; }\n", "x.c")
    done = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Werror", "-fsyntax-only", source], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_refused():
    good = make.write(make.chain([100, 200, 48]))
    assert "offset" in complaint(good[:len(good) // 2])
    bad = make.chain([100, 200])
    bad["subgraphs"][0]["operators"][0]["inputs"] = [7]
    assert "`Operator.inputs`" in complaint(bad)
    bad = make.chain([100, 200])
    bad["subgraphs"][0]["operators"][0]["code"] = 3
    assert "`Operator.opcode_index`" in complaint(bad)
    bad = make.chain([100, 200])
    bad["subgraphs"][0]["tensors"][0]["shape"] = [2**31 - 1] * 4
    assert "`Tensor.shape`" in complaint(bad)
    bad = make.chain([100, 200])
    bad["subgraphs"][0]["tensors"][0]["shape"] = [-1]
    assert "--dim" in complaint(bad)
    assert lives(plan(bad, "--dim", "t0:0=5"))[0, 0][2] == 16


def test_hostile(every=5):
    """Cut at every length, and every byte changed: an answer or a complaint, never a crash."""
    model = control_flow()
    model["subgraphs"] = model["subgraphs"][:3]
    model["subgraphs"][0]["operators"] = model["subgraphs"][0]["operators"][1:2]
    good = make.write(model)
    rng = random.Random(2)
    for cut in range(8, len(good), every):
        run("plan", save(good[:cut]), "--json")
    for at in range(8, len(good), every):
        changed = bytearray(good)
        changed[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, changed[at] ^ 1 << rng.randrange(8)])
        run("plan", save(bytes(changed)), "--json", "--write", os.path.join(folder, "h.tflite"))


run_cases(globals())
