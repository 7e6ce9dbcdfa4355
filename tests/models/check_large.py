"""A model of 30 MB takes little memory of its own: weights stay in the file, where the kernel maps what is looked at.

usage: check_large.py BERTH
"""
import fcntl
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tflite as make  # noqa: E402
from make_onnx import data, model, node, number  # noqa: E402
from run_berth import berth, run_cases, save  # noqa: E402

LAYERS, WEIGHTS = 300, 100000
# Code that is changed while it is loaded, the stack's first pages, rows and plan: private memory of any kind.
ALLOWED = 6 << 20
# Resident beside what is touched of the file. The kernel maps 64 KiB around every page that is looked at, and calls all of it
# referenced, so that this cannot be told from what was mapped: a model whose every layer is looked at counts as a whole.
RATIO = 1.2
F_SETPIPE_SZ = 1031


def most_resident(path):
    """In bytes, once the answer is being written: it is longer than the pipe, so that the process waits for us."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    with subprocess.Popen([berth, "plan", path, "--json"], stdout=write_end) as child:
        os.close(write_end)
        with open(read_end, "rb") as answer:
            first = answer.read(1)
            with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
                kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
            assert len(first + answer.read()) > 16 << 10
    assert child.returncode == 0
    return kib << 10


def plan_within(path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (ALLOWED, ALLOWED))
    done = subprocess.run([berth, "plan", path, "--json"], capture_output=True, text=True, check=False, preexec_fn=limit)
    assert done.returncode == 0, done.stderr
    size, resident = os.path.getsize(path), most_resident(path)
    assert size > 29 << 20
    assert resident <= RATIO * size, f"{path}: {resident} bytes resident of a file of {size}"


def test_tflite():
    tensors = [{"name": f"t{i}", "shape": [64 + i * 37 % 400, 16], "type": "i8"} for i in range(LAYERS + 1)]
    tensors += [{"name": f"w{i}", "shape": [WEIGHTS], "type": "i8", "data": bytes(WEIGHTS)} for i in range(LAYERS + 10)]
    operators = [{"code": 0, "inputs": [i, max(0, i - 5), LAYERS + 1 + i], "outputs": [i + 1]} for i in range(LAYERS)]
    plan_within(save(make.write({"codes": [make.CONV], "subgraphs": [
        {"tensors": tensors, "inputs": [0], "outputs": [LAYERS], "operators": operators}]}), "m.tflite"))


def test_onnx():
    nodes, weights = [], []
    for i in range(LAYERS + 10):
        nodes += [node("Add", [f"t{i}", f"t{max(0, i - 5)}"], [f"s{i}"]), node("MatMul", [f"s{i}", f"w{i}"], [f"t{i + 1}"])]
        weights.append(number(1, 158) * 2 + number(2, 1) + data(8, f"w{i}") + data(9, bytes(4 * 158 * 158)))
    plan_within(save(model(nodes, [("t0", [16, 158])], [(f"t{LAYERS + 10}", None, 0)], weights), "m.onnx"))


run_cases(globals())
