"""Nets as PyTorch exports them, without shapes between: every tensor has the bytes and the life that python3-onnx's own inference gives,
and the bound is that of a count over them.

usage: /usr/bin/python3 check_exports.py BERTH FOLDER

Exits 77 where torch or onnx is not to be had.
"""
import json
import os
import subprocess
import sys
import warnings

try:
    import onnx
    import torch
    from onnx import shape_inference
    from torch import nn
    from torch.nn import functional as F
except ImportError as missing:
    print(missing)
    sys.exit(77)

berth, folder = sys.argv[1], sys.argv[2]
SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Net(nn.Module):
    """Parts that are named, and what is done with them."""

    def __init__(self, does, **parts):
        super().__init__()
        self.does = does
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.does(self, *inputs)


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


def unet(m, x):
    a = m.down(x)
    b = m.deep(F.max_pool2d(a, 2))
    return m.out(torch.cat([m.up(b), a, F.interpolate(b, scale_factor=2, mode="bilinear")], 1))


def attend(m, x):
    batch, length = x.shape
    y = m.words(x) + m.places(torch.arange(length))
    q, k, v = (z.view(batch, length, 4, -1).transpose(1, 2) for z in m.qkv(m.norm(y)).chunk(3, -1))
    mask = torch.tril(torch.ones(length, length)) == 0
    a = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).masked_fill(mask, float("-inf")).softmax(-1)
    return m.head(F.gelu(y + (a @ v).transpose(1, 2).reshape(batch, length, -1)))


def detect(m, x):
    y = m.body(x)
    boxes, (_, _, height, width) = m.boxes(y), y.shape
    grid = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"), -1).float()
    boxes = boxes.view(x.size(0), 3, 4, height, width).permute(0, 1, 3, 4, 2)
    boxes = torch.cat([(boxes[..., :2].sigmoid() + grid) * 8, boxes[..., 2:].exp()], -1).reshape(x.size(0), -1, 4)
    top, at = boxes[..., 0].topk(10, 1)
    return torch.gather(boxes, 1, at.unsqueeze(-1).expand(-1, -1, 4)), top


def rearrange(_, x, i):
    y = torch.zeros_like(x)
    y[:, i] = x[:, i]
    parts = x.split([2, 3, 4], 1)
    return (x[:, 1:-1:2], x.flip(1), F.one_hot(i, 9), y, torch.where(x > 0, x, -x).cumsum(1), x.roll(2, 1), parts[1] * 2,
            x.sort(1)[0], x.norm(dim=1), x.std(1), x.expand(2, 4, 9), x.repeat(2, 3), torch.stack(parts[0].unbind(1)))


def resize(_, x):
    return (F.pad(x, (1, 2, 3, 4), mode="reflect"), F.interpolate(x, size=(20, 17)), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool2d(x, 3, 2, ceil_mode=True), F.adaptive_avg_pool2d(x, 1), F.pixel_shuffle(x, 2), F.unfold(x, 3, padding=1))


NETS = {
    "lstm": (Net(lambda m, x: m.out(m.lstm(x)[0]), lstm=nn.LSTM(16, 24, 2, bidirectional=True, batch_first=True), out=nn.Linear(48, 7)),
             [torch.rand(2, 9, 16)]),
    "gru": (Net(lambda m, x: m.gru(x), gru=nn.GRU(16, 24)), [torch.rand(9, 2, 16)]),
    "unet": (Net(unet, down=block(3, 8), deep=block(8, 16), up=nn.ConvTranspose2d(16, 8, 2, 2), out=nn.Conv2d(32, 2, 1)), [torch.rand(1, 3, 32, 32)]),
    "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), [torch.rand(2, 11, 32)]),
    "gpt": (Net(attend, words=nn.Embedding(100, 32), places=nn.Embedding(64, 32), norm=nn.LayerNorm(32), qkv=nn.Linear(32, 96), head=nn.Linear(32, 9)),
            [torch.randint(0, 100, (2, 12))]),
    "detector": (Net(detect, body=block(3, 16), boxes=nn.Conv2d(16, 12, 1)), [torch.rand(1, 3, 16, 16)]),
    "rearrange": (Net(rearrange), [torch.rand(4, 9), torch.tensor([1, 3, 5])]),
    "resize": (Net(resize), [torch.rand(1, 4, 10, 14)]),
}


def bytes_of(info):
    """Rounded up to 64; None if not all is known."""
    count = SIZES[info.type.tensor_type.elem_type]
    if not info.type.tensor_type.HasField("shape"):
        return None
    for dim in info.type.tensor_type.shape.dim:
        if not dim.HasField("dim_value"):
            return None
        count *= dim.dim_value
    return (count + 63) // 64 * 64


def lives_of(graph):
    """First and last step of each tensor; constants aside."""
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    first = {value.name: 0 for value in graph.input}
    last = dict(first)
    for step, node in enumerate(nodes, 1):
        first.update({name: step for name in node.output if name})
        last.update({name: step for name in node.output if name})
        last.update({name: step for name in node.input if name in first})
    last.update({value.name: len(nodes) for value in graph.output})
    return {name: (first[name], last[name] + 1) for name in first}


def check(name, opset, moving):
    net, inputs = NETS[name]
    path = os.path.join(folder, f"{name}_{opset}_{moving}.onnx")
    names = [f"in{k}" for k in range(len(inputs))]
    axes = {n: {k: f"{n}_{k}" for k in range(x.dim())} for n, x in zip(names, inputs)}
    # Without no_grad: else the encoder takes a way of its own, which cannot be exported.
    torch.onnx.export(net.eval(), tuple(inputs), path, opset_version=opset, input_names=names, dynamic_axes=axes if moving else None)
    words = [f"--dim={n}_{k}={size}" for n, x in zip(names, inputs) for k, size in enumerate(x.shape)] if moving else []
    done = subprocess.run([berth, "plan", path, "--json", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (path, done.stderr)
    answer = json.loads(done.stdout)
    got = {t["name"]: t for t in answer["tensors"]}
    model = onnx.load(path)
    for value, x in zip(model.graph.input, inputs):
        for dim, size in zip(value.type.tensor_type.shape.dim, x.shape):
            dim.dim_value = size
    for value in model.graph.output:
        value.ClearField("type")
    del model.graph.value_info[:]
    inferred = shape_inference.infer_shapes(model, False, False, True).graph
    known = {value.name: bytes_of(value) for value in [*inferred.value_info, *inferred.output, *inferred.input]}
    wrong = {n: (got[n]["size"], size) for n, size in known.items() if n in got and size not in (None, got[n]["size"])}
    assert not wrong, (path, wrong)
    lives = lives_of(model.graph)
    assert all((t["lower"], t["upper"]) == lives[n] for n, t in got.items()), path
    live = [0] * (len(model.graph.node) + 2)
    for t in got.values():
        for step in range(t["lower"], t["upper"]):
            live[step] += t["size"]
    assert max(live) == answer["lower_bound"] and answer["proven_optimal"], (path, max(live), answer["lower_bound"])
    return len(got)


os.makedirs(folder, exist_ok=True)
tensors = sum(check(name, opset, moving) for name in NETS for opset, moving in ((14, False), (17, False), (17, True)))
print(f"{len(NETS)} nets, {tensors} tensors")
