"""berth on hand-made ONNX models: inferred shapes, dimensions, subgraphs, errors, and hostile bytes.

usage: check_onnx.py BERTH
"""
import os
import random
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_onnx import BOOL, FLOAT, INT32, INT64, UINT8, function, graph, model, node, refers, tensor  # noqa: E402
from run_berth import complaint_of, plan_json, run, run_cases  # noqa: E402
import run_berth  # noqa: E402


def save(content):
    return run_berth.save(content, "m.onnx")


def plan(content, *words):
    return plan_json(save(content), *words)


def complaint(content, code, *words):
    return complaint_of(save(content), *words, code=code)


def shapes(content, *words):
    """By name: type and shape, as the label of its row tells them."""
    code, out, err = run("convert", save(content)) if not words else (None, None, None)
    assert code == 0, err
    return {m[0]: m[1] for m in re.findall(r'^"?([^",]+)"?,[^"\n]*?"?([a-z]+\d* \[[^\]]*\])', out, re.M)}


def shape_of(kind, inputs, initializers=(), output="y", outputs=("y",), opset=13, **attributes):
    """The shape of an output of one node over inputs (name, shape[, type])."""
    names = [i[0] if not isinstance(i, str) else i for i in inputs]
    made = model([node(kind, names, outputs, **attributes)], [i for i in inputs if not isinstance(i, str)],
                 [(o, None, 0) for o in outputs if o], initializers, opset=opset)
    return shapes(made)[output]


def x(*dims, kind=FLOAT):
    return ("x", list(dims), kind)


def test_layers():
    w = [("w", [8, 3, 3, 3])]
    assert shape_of("Conv", [x(1, 3, 10, 12)] + w) == "f32 [1 8 8 10]"
    assert shape_of("Conv", [x(1, 3, 10, 12)] + w, pads=[1, 1, 1, 1], strides=[2, 2]) == "f32 [1 8 5 6]"
    assert shape_of("Conv", [x(1, 3, 10, 12)] + w, auto_pad="SAME_UPPER", strides=[2, 2]) == "f32 [1 8 5 6]"
    assert shape_of("Conv", [x(1, 3, 10, 12)] + w, dilations=[2, 2]) == "f32 [1 8 6 8]"
    assert shape_of("ConvTranspose", [x(1, 8, 5, 6), ("w", [8, 4, 2, 2])], strides=[2, 2]) == "f32 [1 4 10 12]"
    assert shape_of("MaxPool", [x(1, 3, 7, 7)], kernel_shape=[2, 2], strides=[2, 2]) == "f32 [1 3 3 3]"
    assert shape_of("MaxPool", [x(1, 3, 7, 7)], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1) == "f32 [1 3 4 4]"
    assert shape_of("GlobalAveragePool", [x(1, 3, 7, 7)]) == "f32 [1 3 1 1]"
    assert shape_of("Gemm", [x(4, 5), ("w", [6, 5])], transB=1) == "f32 [4 6]"
    assert shape_of("MatMul", [x(2, 1, 4, 5), ("w", [3, 5, 6])]) == "f32 [2 3 4 6]"
    assert shape_of("MatMul", [x(5), ("w", [5, 6])]) == "f32 [6]"
    lstm = [x(7, 2, 5), ("w", [2, 16, 5]), ("r", [2, 16, 4])]
    assert shape_of("LSTM", lstm, hidden_size=4, direction="bidirectional") == "f32 [7 2 2 4]"
    assert shape_of("LSTM", lstm, hidden_size=4, outputs=("", "h"), output="h") == "f32 [1 2 4]"


def test_elements():
    assert shape_of("Relu", [x(2, 3)]) == "f32 [2 3]"
    assert shape_of("Add", [x(2, 1, 4), ("b", [3, 1])]) == "f32 [2 3 4]"
    assert shape_of("Greater", [x(2, 1), ("b", [3])]) == "bool [2 3]"
    assert shape_of("Cast", [x(2)], to=INT64) == "i64 [2]"
    assert shape_of("Where", [x(2, 1, kind=BOOL), ("b", [3]), ("c", [1])]) == "f32 [2 3]"


def test_moves():
    ints = lambda *values, name="s": tensor(name, list(values))
    assert shape_of("Reshape", [x(2, 6), "s"], [ints(0, -1, 3)]) == "f32 [2 2 3]"
    assert shape_of("Reshape", [x(2, 6), "s"], [tensor("s", [4, -1], raw=False)]) == "f32 [4 3]"
    assert shape_of("Flatten", [x(2, 3, 4)]) == "f32 [2 12]"
    assert shape_of("Transpose", [x(2, 3, 4)], perm=[1, 2, 0]) == "f32 [3 4 2]"
    assert shape_of("Transpose", [x(2, 3, 4)]) == "f32 [4 3 2]"
    assert shape_of("Squeeze", [x(1, 3, 1)]) == "f32 [3]"
    assert shape_of("Squeeze", [x(1, 3, 1), "s"], [ints(-1)]) == "f32 [1 3]"
    assert shape_of("Unsqueeze", [x(3), "s"], [ints(0, 2)]) == "f32 [1 3 1]"
    assert shape_of("Unsqueeze", [x(3)], axes=[1]) == "f32 [3 1]"
    assert shape_of("Concat", [x(2, 3), ("b", [2, 5])], axis=1) == "f32 [2 8]"
    more = [ints(1), ints(2**63 - 1, name="e"), ints(1, name="a"), ints(2, name="t")]
    assert shape_of("Slice", [x(2, 7), "s", "e", "a", "t"], more) == "f32 [2 3]"
    assert shape_of("Slice", [x(7), "s", "e", "a", "t"], [ints(-1), ints(-2**63, name="e"), ints(0, name="a"), ints(-1, name="t")]) == "f32 [7]"
    assert shape_of("Split", [x(2, 6)], outputs=("a", "b", "y"), axis=1) == "f32 [2 2]"
    assert shape_of("Gather", [x(5, 6), ("i", [2, 3], INT64)]) == "f32 [2 3 6]"
    assert shape_of("Expand", [x(3, 1), "s"], [ints(2, 1, 4)]) == "f32 [2 3 4]"
    assert shape_of("Tile", [x(3, 2), "s"], [ints(2, 4)]) == "f32 [6 8]"
    assert shape_of("Pad", [x(3, 2), "s"], [ints(1, 0, 2, 3)]) == "f32 [6 5]"
    assert shape_of("Resize", [x(1, 2, 4, 4), "", "s"], [tensor("s", [1.0, 1.0, 2.0, 1.5], kind=FLOAT)]) == "f32 [1 2 8 6]"
    assert shape_of("ReduceMean", [x(2, 3, 4)], axes=[1], keepdims=0) == "f32 [2 4]"
    assert shape_of("ReduceMean", [x(2, 3, 4)]) == "f32 [1 1 1]"
    assert shape_of("ArgMax", [x(2, 3)], axis=1, keepdims=0) == "i64 [2]"
    assert shape_of("TopK", [x(2, 9), "s"], [ints(4)], outputs=("y", "i"), output="i") == "i64 [2 4]"
    assert shape_of("DepthToSpace", [x(1, 8, 2, 3)], blocksize=2) == "f32 [1 2 4 6]"
    assert shape_of("ConstantOfShape", ["s"], [ints(3, 4)]) == "f32 [3 4]"
    assert shape_of("Range", ["a", "s", "b"], [tensor("a", [0], []), tensor("s", [9], []), tensor("b", [2], [])]) == "i64 [5]"


def test_older_and_newer():
    """What a few operators had as attributes before they had inputs, and what newer sets have added."""
    ints = lambda *values, name="s": tensor(name, list(values))
    assert shape_of("TopK", [x(2, 9)], outputs=("y", "i"), output="i", opset=9, k=4) == "i64 [2 4]"
    assert shape_of("Upsample", [x(1, 2, 4, 4)], opset=7, scales=[1.0, 1.0, 2.0, 1.5]) == "f32 [1 2 8 6]"
    assert shape_of("Resize", [x(1, 2, 4, 4), "", "", "s"], [ints(9, 6)], opset=18, axes=[2, 3]) == "f32 [1 2 9 6]"
    keep = lambda how: shape_of("Resize", [x(1, 2, 10, 20), "", "", "s"], [ints(30, 30)], opset=18, axes=[2, 3], keep_aspect_ratio_policy=how)
    assert keep("not_larger") == "f32 [1 2 15 30]" and keep("not_smaller") == "f32 [1 2 30 60]" and keep("stretch") == "f32 [1 2 30 30]"
    assert shape_of("MaxPool", [x(1, 3, 4, 4)], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1) == "f32 [1 3 2 2]"  # not a window of padding alone
    assert shape_of("Dropout", [x(2, 3)], outputs=("y", "m"), output="m", opset=9) == "f32 [2 3]"
    assert shape_of("Dropout", [x(2, 3)], outputs=("y", "m"), output="m") == "bool [2 3]"
    assert shape_of("LayerNormalization", [x(2, 3, 4), ("s", [3, 4])], outputs=("y", "m"), output="m", opset=17, axis=1) == "f32 [2 1 1]"
    batch = [x(2, 3, 4)] + [(n, [3]) for n in "sbmv"]
    assert shape_of("BatchNormalization", batch, outputs=("y", "m", "v2"), output="v2", opset=15, training_mode=1) == "f32 [3]"
    assert "'y' (by Conv)" in complaint(model([node("Conv", ["x", "w"], ["y"])], [x(1, 3, 2, 2), ("w", [8, 3, 5, 5])], [("y", None, 0)]), 3)
    assert "'y' (by Add)" in complaint(model([node("Add", ["x", "b"], ["y"])], [x(4), ("b", [5])], [("y", None, 0)]), 3)


def test_quantized():
    """Types follow the zero and the scale; elements of four bits lie two in a byte."""
    half, int4 = 10, 22
    assert shape_of("QuantizeLinear", [x(2, 3), ("s", []), ("z", [], 3)]) == "i8 [2 3]"
    assert shape_of("QuantizeLinear", [x(2, 3), ("s", [])]) == "u8 [2 3]"
    assert shape_of("QuantizeLinear", [x(2, 3), ("s", [])], opset=21, output_dtype=int4) == "i4 [2 3]"
    assert shape_of("DequantizeLinear", [x(2, 3, kind=3), ("s", [], half)], opset=19) == "f16 [2 3]"
    assert shape_of("DequantizeLinear", [x(2, 3, kind=3), ("s", [])]) == "f32 [2 3]"
    made = model([node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=int4)], [("x", [257]), ("s", [])], [("y", None, 0)], opset=21)
    assert {t["name"]: t["size"] for t in plan(made)["tensors"]}["y"] == 192  # 129 bytes, rounded up to 64


def test_rare():
    ints = lambda *values, name="s": tensor(name, list(values))
    single = lambda value, name: tensor(name, [value], [])
    assert shape_of("OneHot", [x(2, 3, kind=INT64), "d", ("v", [2])], [single(9, "d")]) == "f32 [2 3 9]"
    assert shape_of("OneHot", [x(2, 3, kind=INT64), "d", ("v", [2])], [single(9, "d")], axis=0) == "f32 [9 2 3]"
    assert shape_of("GatherND", [x(2, 5, 7), ("i", [2, 4, 1], INT64)], batch_dims=1) == "f32 [2 4 7]"
    assert shape_of("CastLike", [x(2, 3), ("t", [1], INT32)]) == "i32 [2 3]"
    assert shape_of("EyeLike", [x(2, 3, kind=INT32)], dtype=FLOAT) == "f32 [2 3]"
    assert shape_of("RandomNormal", [], shape=[4, 5]) == "f32 [4 5]"
    assert shape_of("RandomUniformLike", [x(4, kind=INT64)], dtype=FLOAT) == "f32 [4]"
    assert shape_of("Multinomial", [x(2, 9)], sample_size=4) == "i32 [2 4]"
    assert shape_of("GridSample", [x(1, 3, 8, 8), ("g", [1, 5, 6, 2])]) == "f32 [1 3 5 6]"
    assert shape_of("AffineGrid", [x(2, 2, 3), "s"], [ints(2, 3, 5, 6)]) == "f32 [2 5 6 2]"
    assert shape_of("RoiAlign", [x(1, 3, 8, 8), ("r", [7, 4]), ("b", [7], INT64)], output_height=2, output_width=4) == "f32 [7 3 2 4]"
    assert shape_of("MaxRoiPool", [x(1, 3, 8, 8), ("r", [7, 5])], pooled_shape=[2, 4]) == "f32 [7 3 2 4]"
    assert shape_of("MaxUnpool", [x(1, 1, 2, 2), ("i", [1, 1, 2, 2], INT64)], kernel_shape=[2, 2], strides=[2, 2]) == "f32 [1 1 4 4]"
    assert shape_of("Col2Im", [x(1, 12, 20), "s", "k"], [ints(5, 5), ints(1, 4, name="k")]) == "f32 [1 3 5 5]"
    assert shape_of("CenterCropPad", [x(1, 9, 9), "s"], [ints(4, 12)], axes=[1, 2]) == "f32 [1 4 12]"
    assert shape_of("Det", [x(5, 3, 3)]) == "f32 [5]"
    assert shape_of("HannWindow", ["n"], [single(16, "n")]) == "f32 [16]"
    assert shape_of("MelWeightMatrix", ["n", "d", ("r", [], INT64)], [single(8, "n"), single(16, "d")]) == "f32 [9 8]"
    assert shape_of("DFT", [x(2, 16, 1)], onesided=1, axis=1, opset=17) == "f32 [2 9 2]"
    assert shape_of("DFT", [x(2, 16, 3, 2), "", "a"], [single(1, "a")], opset=20) == "f32 [2 16 3 2]"
    assert shape_of("STFT", [x(1, 128, 1), "n", ("w", [16])], [single(8, "n")], opset=17) == "f32 [1 15 9 2]"
    assert shape_of("NegativeLogLikelihoodLoss", [x(3, 5), ("t", [3], INT64)], reduction="none") == "f32 [3]"
    assert shape_of("SoftmaxCrossEntropyLoss", [x(3, 5), ("t", [3], INT64)], outputs=("l", "y")) == "f32 [3 5]"
    assert shape_of("NonZero", ["c"], [ints(0, 3, 0, 4, name="c")]) == "i64 [1 2]"
    heads = [x(1, 7, 64), ("k", [1, 9, 32]), ("v", [1, 9, 16])]
    assert shape_of("Attention", heads, opset=23, q_num_heads=8, kv_num_heads=4) == "f32 [1 7 32]"


def test_of_onnx_runtime():
    """What its quantizer and its optimizer write."""
    own = lambda kind, inputs, *more, **attributes: shape_of(kind, inputs, *more, domain="com.microsoft", **attributes)
    q = lambda name, *dims: (name, list(dims), UINT8)
    scales = [("as", []), q("az"), ("bs", []), q("bz"), ("ys", []), q("yz")]
    added = [q("a", 2, 1, 4), scales[0], scales[1], q("b", 3, 1), scales[2], scales[3], scales[4], scales[5]]
    assert own("QLinearAdd", added) == "u8 [2 3 4]"
    gemm = [q("a", 4, 5), scales[0], scales[1], q("b", 6, 5), scales[2], scales[3]]
    assert own("QGemm", gemm + ["", scales[4], scales[5]], transB=1) == "u8 [4 6]"
    assert own("QGemm", gemm, transB=1) == "f32 [4 6]"
    joined = [scales[4], scales[5], q("a", 2, 3), scales[0], scales[1], q("b", 2, 5), scales[2], scales[3]]
    assert own("QLinearConcat", joined, axis=1) == "u8 [2 8]"
    assert own("QLinearGlobalAveragePool", [q("a", 1, 7, 9, 3)] + scales[:4], channels_last=1) == "u8 [1 1 1 3]"
    assert own("DynamicQuantizeMatMul", [x(2, 4, 5), q("b", 5, 6), scales[2]]) == "f32 [2 4 6]"
    assert own("MatMulIntegerToFloat", [q("a", 4, 5), q("b", 5, 6), scales[0], scales[2]]) == "f32 [4 6]"
    assert own("FusedMatMul", [x(2, 5, 4), ("b", [2, 6, 5])], transA=1, transB=1) == "f32 [2 4 6]"
    assert own("FusedConv", [x(1, 3, 10, 12), ("w", [8, 3, 3, 3])]) == "f32 [1 8 8 10]"
    assert own("MatMulNBits", [x(2, 7, 64), q("b", 32, 2, 16), ("s", [64])], K=64, N=32, bits=4) == "f32 [2 7 32]"
    skip = [x(2, 7, 64), ("k", [2, 7, 64]), ("g", [64])]
    assert own("SkipLayerNormalization", skip, outputs=("a", "", "", "y")) == "f32 [2 7 64]"
    assert own("Attention", [x(2, 7, 64), ("w", [64, 96]), ("b", [96])], num_heads=4) == "f32 [2 7 32]"
    assert own("MultiHeadAttention", [x(2, 7, 64), ("k", [2, 9, 64]), ("v", [2, 9, 32])], num_heads=4) == "f32 [2 7 32]"
    ids = [("x", [2, 7], INT32), "", ("w", [99, 64]), ("p", [9, 64])]
    assert own("EmbedLayerNormalization", ids, outputs=("y", "m")) == "f32 [2 7 64]"


def test_of_nobody_we_know():
    """The name of an operator says nothing in another domain."""
    made = lambda infos: model([node("Add", ["x", "x"], ["y"], domain="somebody.else")], [("x", [4])], [("y", None, 0)], infos=infos)
    assert "'y' (by Add)" in complaint(made([]), 3)
    assert shapes(made([("y", [9])]))["y"] == "f32 [9]"


def test_computed_numbers():
    """As exporters write x.expand(-1, n) with sizes that they look up: comparisons, choices, roots and least numbers."""
    nodes = [node("Shape", ["x"], ["shape"]), node("ConstantOfShape", ["two"], ["ones"], value=("tensor", tensor("", [1]))),
             node("Neg", ["ones"], ["keep"]), node("Equal", ["want", "keep"], ["kept"]), node("Where", ["kept", "ones", "want"], ["to"]),
             node("Expand", ["x", "to"], ["y"]),
             node("Cast", ["shape"], ["real"], to=FLOAT), node("ReduceMin", ["real"], ["least"], keepdims=0), node("Reciprocal", ["least"], ["part"]),
             node("Mul", ["big", "part"], ["factor"]), node("Cast", ["factor"], ["times"], to=INT64), node("Range", ["zero", "times", "one"], ["r"]),
             node("NonZero", ["r"], ["n"]), node("Max", ["want", "ones"], ["m"]), node("Mod", ["want", "seven"], ["rest"]),
             node("Expand", ["x", "m"], ["z"]), node("ConstantOfShape", ["rest"], ["c"])]
    made = model(nodes, [("x", [3, 1])], [(o, None, 0) for o in "yzcn"], [
        tensor("two", [2]), tensor("want", [-1, 9]), tensor("big", [5.0], [], kind=FLOAT), tensor("zero", [0], []), tensor("one", [1], []),
        tensor("seven", [7], [])])
    got = shapes(made)
    assert got["y"] == got["z"] == "f32 [3 9]" and got["r"] == "i64 [5]" and got["n"] == "i64 [1 4]" and got["c"] == "f32 [6 2]", got


def test_computed_shapes():
    """Shape, Gather, Unsqueeze, Concat, Reshape: as exporters write x.view(n, -1)."""
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["n"]),
             node("Mul", ["n", "two"], ["twice"]), node("Unsqueeze", ["twice"], ["n1"], axes=[0]),
             node("Constant", [], ["rest"], value=("tensor", tensor("", [-1]))),
             node("Concat", ["n1", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])]
    made = model(nodes, [("x", [3, 4, 5])], [("y", None, 0)], [tensor("zero", [0], []), tensor("two", [2], [])])
    assert shapes(made)["y"] == "f32 [6 10]"
    assert "rest" not in shapes(made)


def test_dims():
    made = model([node("Relu", ["x"], ["y"])], [("x", ["batch", 4, None])], [("y", ["batch", 4, "n"])])
    err = complaint(made, 2)
    assert "'batch'" in err and "'x:2'" in err and "--dim" in err, err
    assert plan(made, "--dim", "batch=2", "--dim", "x:2=8")["peak"] == 512
    assert plan(made, "--dim", "*=8")["peak"] == 2048
    assert "no such dimension" in complaint(made, 2, "--dim", "*=1", "--dim", "other=3")


def test_unknown():
    made = lambda infos: model([node("Mystery", ["x"], ["y"]), node("Relu", ["y"], ["z"])], [("x", [4])], [("z", None, 0)],
                               infos=infos)
    err = complaint(made([]), 3)
    assert "'y' (by Mystery)" in err and "'z'" not in err and "shape inference" in err, err
    assert shapes(made([("y", [2, 2])]))["z"] == "f32 [2 2]"


def branches(cond):
    then = graph([node("Add", ["x", "x"], ["t"])], [], [("t", None, 0)])
    other = graph([node("Concat", ["x", "big"], ["e"], axis=0)], [], [("e", None, 0)])
    return model([node("Relu", ["a"], ["x"]), node("Relu", ["a"], ["big"]), node("Equal", ["k", "one"], ["c"]),
                  node("If", ["c"], ["y"], then_branch=("graph", then), else_branch=("graph", other)), node("Relu", ["y"], ["z"])],
                 [("a", [64])] + ([("k", [], INT64)] if cond is None else []), [("z", None, 0)],
                 [tensor("one", [1], [])] + ([] if cond is None else [tensor("k", [cond], [])]))


def test_branches():
    assert shapes(branches(None))["z"] == "f32 [128]"  # room for either
    assert shapes(branches(1))["z"] == "f32 [64]"
    assert shapes(branches(0))["z"] == "f32 [128]"
    assert plan(branches(None), "--dim", "k=1")["peak"] < plan(branches(None))["peak"]
    rows = {t["name"]: t for t in plan(branches(None))["tensors"]}
    assert rows["x"]["upper"] >= rows["e"]["upper"] and rows["big"]["upper"] > rows["e"]["lower"]


def test_loop():
    body = graph([node("Add", ["v", "outside"], ["w"]), node("Identity", ["go"], ["on"])],
                 [("i", [], INT64), ("go", [], BOOL), ("v", None)], [("on", None, 0), ("w", None, 0), ("w", None, 0)])
    made = model([node("Loop", ["m", "", "x"], ["last", "all"], body=("graph", body))], [("x", [4]), ("outside", [4])],
                 [("last", None, 0), ("all", None, 0)], [tensor("m", [5], [])])
    assert shapes(made)["last"] == "f32 [4]" and shapes(made)["all"] == "f32 [5 4]"


def test_growing_loop():
    """A state that is larger after each run: the file tells the first of them."""
    body = graph([node("Concat", ["v", "x"], ["w"], axis=0), node("Identity", ["go"], ["on"])],
                 [("i", [], INT64), ("go", [], BOOL), ("v", None)], [("on", None, 0), ("w", None, 0)])
    made = model([node("Loop", ["m", "", "x"], ["last"], body=("graph", body))], [("x", [64])], [("last", None, 0)], [tensor("m", [10], [])])
    assert "'v' (a state of Loop whose shape changes" in complaint(made, 3)
    sizes = {t["name"]: t["size"] for t in plan(made, "--dim", "v:0=640")["tensors"]}
    assert sizes["v"] == 2560 and sizes["w"] == sizes["last"] == 2816, sizes


def test_einsum():
    einsum = lambda equation, *inputs: shape_of("Einsum", [(f"i{k}", list(dims)) for k, dims in enumerate(inputs)], equation=equation)
    assert einsum("ij,jk->ik", (2, 3), (3, 4)) == "f32 [2 4]"
    assert einsum("ij,jk", (2, 3), (3, 4)) == "f32 [2 4]"
    assert einsum(" b i , b j -> b j i ", (5, 2), (5, 3)) == "f32 [5 3 2]"
    assert einsum("...ij,...jk->...ik", (7, 1, 2, 3), (6, 3, 4)) == "f32 [7 6 2 4]"
    assert einsum("...ii->...i", (4, 3, 3)) == "f32 [4 3]"
    assert einsum("ba", (2, 3)) == "f32 [3 2]"
    assert einsum("ij->", (2, 3)) == "f32 []"
    for equation in ("ij,jk->iz", "ij,jk,kl->il", "ijk,jk->i", "i$,jk->i", "ij"):
        bad = model([node("Einsum", ["a", "b"], ["y"], equation=equation)], [("a", [2, 3]), ("b", [3, 4])], [("y", None, 0)])
        assert "'y' (by Einsum)" in complaint(bad, 3), equation
    bad = model([node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik")], [("a", [2, 3]), ("b", [5, 4])], [("y", None, 0)])
    assert "'y' (by Einsum)" in complaint(bad, 3)


def test_depends_on_data():
    made = model([node("NonZero", ["x"], ["y"]), node("Transpose", ["y"], ["z"])], [("x", [4, 5])], [("z", None, 0)])
    err = complaint(made, 3)
    assert "'y' (by NonZero, which depends on data: --dim NAME:1=N" in err and "'z'" not in err, err
    tensors = {t["name"]: t["size"] for t in plan(made, "--dim", "y:1=20")["tensors"]}
    assert tensors["y"] == tensors["z"] == 320, tensors
    # for an axis of all that depend on data; not for shapes of which nothing is known
    both = model([node("NonZero", ["x"], ["y"]), node("NonZero", ["b"], ["z"])], [("x", [4, 5]), ("b", [7])], [("y", None, 0), ("z", None, 0)])
    tensors = {t["name"]: t["size"] for t in plan(both, "--dim", "*:1=20", "--dim", "z:1=8")["tensors"]}
    assert tensors["y"] == 320 and tensors["z"] == 64, tensors
    mystery = model([node("Mystery", ["x"], ["y"])], [("x", [4])], [("y", None, 0)])
    assert "'y' (by Mystery)" in complaint(mystery, 3, "--dim", "*:0=20")
    made = model([node("Compress", ["x", "c"], ["y"], axis=1)], [("x", [4, 5]), ("c", [5], BOOL)], [("y", None, 0)])
    assert "NAME:1=N" in complaint(made, 3)
    assert {t["name"]: t["size"] for t in plan(made, "--dim", "y:1=3")["tensors"]}["y"] == 64
    # of an operator that nobody knows the user can say the whole shape
    made = model([node("Mystery", ["x"], ["y"])], [("x", [4])], [("y", None, 0)])
    assert {t["name"]: t["size"] for t in plan(made, "--dim", "y:0=10", "--dim", "y:1=20")["tensors"]}["y"] == 832


def test_scan():
    body = graph([node("Add", ["sum", "slice"], ["next"]), node("Unsqueeze", ["next"], ["one"], axes=[0])],
                 [("sum", None), ("slice", None)], [("next", None, 0), ("one", None, 0)])
    made = lambda **more: model([node("Scan", ["s", "x"], ["last", "all"], body=("graph", body), num_scan_inputs=1, **more)],
                                [("s", [3]), ("x", [7, 3])], [("last", None, 0), ("all", None, 0)])
    assert shapes(made())["last"] == "f32 [3]" and shapes(made())["all"] == "f32 [7 1 3]" and shapes(made())["slice"] == "f32 [3]"
    assert shapes(made(scan_output_axes=[-1]))["all"] == "f32 [1 3 7]"
    assert "'all'" in complaint(made(scan_input_axes=[5]), 3) or "'slice'" in complaint(made(scan_input_axes=[5]), 3)
    wide = model([node("Scan", ["s", "x"], ["last", "all"], body=("graph", body), num_scan_inputs=1, scan_input_axes=[1])],
                 [("s", [3]), ("x", [3, 9])], [("last", None, 0), ("all", None, 0)])
    assert shapes(wide)["all"] == "f32 [9 1 3]"


def test_functions():
    twice = function("Twice", ["a", "b"], ["c", "d"], [node("Add", ["a", "a"], ["t"]), node("Concat", ["t", "a"], ["c"]) + refers("axis", "along"),
                                                      node("Relu", ["t"], ["d"])], defaults={"along": 0})
    made = lambda call, *more: model([call, node("Relu", ["p"], ["z"])], [("x", [4, 6])], [("z", None, 0)], functions=[twice, *more])
    got = shapes(made(node("Twice", ["x", ""], ["p", "q"], domain="own")))
    assert got["p"] == "f32 [8 6]" and got["q"] == "f32 [4 6]" and got["z"] == "f32 [8 6]", got
    assert shapes(made(node("Twice", ["x"], ["p"], domain="own", along=1)))["z"] == "f32 [4 12]"
    # a function that calls another passes its attribute on
    outer = function("Outer", ["a"], ["b"], [node("Twice", ["a"], ["b"], domain="own") + refers("along", "over")])
    assert shapes(made(node("Outer", ["x"], ["p"], domain="own", over=1), outer))["z"] == "f32 [4 12]"
    assert shapes(made(node("Outer", ["x"], ["p"], domain="own"), outer))["z"] == "f32 [8 6]"
    # the same names in both places are different tensors, and lives are those of the nodes inside
    rows = {t["name"]: t for t in plan(made(node("Twice", ["x"], ["p"], domain="own")))["tensors"]}
    assert (rows["t"]["lower"], rows["t"]["upper"]) == (1, 4) and (rows["p"]["lower"], rows["p"]["upper"]) == (2, 5), rows
    assert "Twice" in complaint(made(node("Twice", ["x"], ["p"], domain="other")), 3)
    endless = function("Endless", ["a"], ["b"], [node("Endless", ["a"], ["b"], domain="own")])
    assert "deep" in complaint(made(node("Endless", ["x"], ["p"], domain="own"), endless), 3)
    many = [function(f"F{k}", ["a"], ["c"], [node(f"F{k + 1}", ["a"], ["b"], domain="own"), node(f"F{k + 1}", ["b"], ["c"], domain="own")])
            for k in range(30)] + [function("F30", ["a"], ["b"], [node("Relu", ["a"], ["b"])])]
    assert "nodes" in complaint(made(node("F0", ["x"], ["p"], domain="own"), *many), 3)
    lost = function("Lost", ["a"], ["nowhere"], [node("Relu", ["a"], ["b"])])
    assert "FunctionProto.output" in complaint(made(node("Lost", ["x"], ["p"], domain="own"), lost), 3)


def test_refused():
    assert "nobody makes 'q'" in complaint(model([node("Relu", ["q"], ["y"])], [("x", [4])], [("y", None, 0)]), 3)
    assert "nobody makes 'q'" in complaint(model([], [("x", [4])], [("q", None, 0)]), 3)
    assert "no ONNX model" in complaint(b"id,lower,upper,size\n", 3)
    assert complaint(b"\0", 3)
    deep = graph([node("Relu", ["x"], ["y"])], [], [("y", None, 0)])
    for _ in range(40):
        deep = graph([node("If", ["c"], ["y"], then_branch=("graph", deep), else_branch=("graph", b""))], [], [("y", None, 0)])
    assert "deep" in complaint(model([node("If", ["c"], ["y"], then_branch=("graph", deep))], [("c", [], BOOL), ("x", [4])],
                                     [("y", None, 0)]), 3)


def test_hostile(every=4):
    """Cut at many lengths, and many bytes changed: an answer or a complaint, never a crash."""
    rng = random.Random(3)
    conv = model([node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Slice", ["a", "s", "s"], ["b"]),
                  node("Pad", ["b", "p"], ["y"])], [("x", [1, 3, 8, 8]), ("w", [4, 3, 3, 3])], [("y", None, 0)],
                 [tensor("s", [1]), tensor("p", [1] * 8)])
    called = model([node("F", ["x"], ["y"], domain="own", along=1)], [("x", [4, 6])], [("y", None, 0)], functions=[
        function("F", ["a", "b"], ["c"], [node("Concat", ["a", "a"], ["t"]) + refers("axis", "along"),
                                          node("Einsum", ["t", "a"], ["c"], equation="ij,ik->jk")])])
    assert shapes(called)["y"] == "f32 [12 6]"
    for good in (branches(None), conv, called):
        for cut in range(1, len(good), every):
            run("plan", save(good[:cut]), "--json")
        for at in range(0, len(good), every):
            changed = bytearray(good)
            changed[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, changed[at] ^ 1 << rng.randrange(8)])
            run("plan", save(bytes(changed)), "--json", "--dim", "*=3")


run_cases(globals())
