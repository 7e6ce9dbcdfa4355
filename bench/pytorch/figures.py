#!/usr/bin/env python3
"""PyTorch's figures: five kinds of models on libtorch's allocator, tcmalloc, Berth's pool and a plan.

    PYTHONPATH=build/bindings/pytorch python3 bench/pytorch/figures.py [--check] [--repeats N] [MODEL...]

bindings/pytorch/berth_figures.py does the measuring: a process for each allocator, their runs in turn, the best of each.
--check: exit 1 unless every figure is met.
"""
import argparse
import os
import sys

import torch
from torch import nn

import berth_figures

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "tests", "pytorch"))
import models  # noqa: E402


def unet(mkldnn):
    torch.backends.mkldnn.enabled = mkldnn
    return models.inference(models.UNet(), torch.rand(1, 3, 256, 256))


def mobilenet():
    import torchvision
    return models.inference(torchvision.models.mobilenet_v2(), torch.rand(1, 3, 224, 224))


def transformer():
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    return models.inference(nn.TransformerEncoder(layer, 3), torch.rand(4, 64, 256))


def lstm():
    return models.inference(nn.LSTM(64, 128, 2, batch_first=True), torch.rand(4, 40, 64))


def training_step():
    mlp = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return models.training_step(mlp, torch.rand(64, 256), torch.arange(64) % 10)


MODELS = {"unet_no_mkldnn": lambda: unet(False), "unet": lambda: unet(True), "mobilenet_v2": mobilenet,
          "transformer": transformer, "lstm": lstm, "training_step": training_step}


def make(name):
    """A run that keeps nothing, so that its output lives inside the scope as a server's would that sends it off."""
    torch.manual_seed(1)
    run = MODELS[name]()
    return lambda: run() is None


def judge(name, figures):
    """The figures' promises: a list of (what, holds)."""
    default, plan = figures["default"], figures["plan"]
    found = []
    for peer in ("pool", "plan"):
        seconds, noise, faults = figures[peer][:3]
        ratio, tolerated = seconds / default[0], 1 + max(0.02, min(noise, default[1]))
        found.append((f"{peer}: {ratio:.3f} of the default's time, at most {tolerated:.2f}", ratio <= tolerated))
        found.append((f"{peer}: {faults:.0f} page faults a run, 0", faults == 0))
    if name == "unet_no_mkldnn":
        found.append((f"plan: {plan[0] / default[0]:.3f} of the default's time, at most 0.5", plan[0] <= 0.5 * default[0]))
    if plan[4] > 4 << 20:  # below it the interpreter's own pages are more than two parts in a hundred
        found.append((f"plan: resident {plan[3] / plan[4]:.3f} of planned, at most 1.02", plan[3] <= 1.02 * plan[4]))
    found.append((f"plan: {plan[4]} bytes, lower bound {plan[5]}", plan[4] == plan[5]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all unless named")
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.models or MODELS:
        figures = berth_figures.compare([sys.executable, os.path.abspath(__file__), "--work", name], arguments.repeats)
        berth_figures.show(name, figures)
        for what, holds in judge(name, figures):
            print(f"    {'ok    ' if holds else 'MISSED'}  {what}", flush=True)
            missed += not holds
    sys.exit(1 if arguments.check and missed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        berth_figures.work(sys.argv[3], lambda: make(sys.argv[2]))
    else:
        main()
