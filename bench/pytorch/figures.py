#!/usr/bin/env python3
"""PyTorch's figures: kinds of models, and some drawn at random, on libtorch's allocator, tcmalloc, Berth's pool and a plan.

    PYTHONPATH=build/bindings/pytorch python3 bench/pytorch/figures.py [--check] [--repeats N] [--seed S] [MODEL...]

bindings/pytorch/berth_figures.py does the measuring: a process for each allocator, turns in rounds, medians of the ratios of one
round. "empty" is what entering and leaving a replay takes. --check: exit 1 unless every figure is met.
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


def adamw():
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(32 * 128, 10))
    return models.optimiser_step(model, torch.rand(16, 32, 128), torch.arange(16) % 10)


MODELS = {"unet_no_mkldnn": lambda: unet(False), "unet": lambda: unet(True), "mobilenet_v2": mobilenet,
          "transformer": transformer, "lstm": lstm, "training_step": training_step, "adamw": adamw}
DRAWN = "drawn_"  # and the seed that it is drawn with


def make(name):
    """A run that keeps nothing, so that its output lives inside the scope as a server's would that sends it off."""
    torch.manual_seed(1)
    run = models.drawn(int(name[len(DRAWN):])) if name.startswith(DRAWN) else MODELS[name]()
    return lambda: run() is None


def judge(name, figures):
    """The figures' promises: a list of (what, holds)."""
    pool, plan = figures["pool"], figures["plan"]
    found = [(f"pool: {pool.to_default:.3f} of the default's time, at most 1.02", pool.to_default <= 1.02),
             (f"plan: {plan.to_pool:.3f} of the pool's time, at most 1.00", plan.to_pool < 1.005)]
    found += [(f"{peer}: {figures[peer].faults:.1f} page faults a run, 0", figures[peer].faults < 0.5) for peer in ("pool", "plan")]
    if name == "unet_no_mkldnn":
        found.append((f"plan: {plan.to_default:.3f} of the default's time, at most 0.5", plan.to_default <= 0.5))
    if plan.planned_bytes > 4 << 20:  # below it the interpreter's own pages are more than two parts in a hundred
        peak = plan.peak_bytes / plan.planned_bytes
        found.append((f"plan: resident {peak:.3f} of planned, at most 1.02", peak <= 1.02))
        if plan.bound_bytes <= 0.9 * pool.peak_bytes:
            peak = plan.peak_bytes / pool.peak_bytes
            found.append((f"plan: resident {peak:.3f} of the pool's, at most 0.9", peak <= 0.9))
    found.append((f"plan: {plan.planned_bytes} bytes, lower bound {plan.bound_bytes}", plan.planned_bytes == plan.bound_bytes))
    return found


def say(found):
    """Prints what was judged; how many were missed."""
    for what, holds in found:
        print(f"    {'ok    ' if holds else 'MISSED'}  {what}", flush=True)
    return sum(not holds for _, holds in found)


def judge_empty():
    kept, made = berth_figures.enter_and_leave()
    return [(f"replay: {seconds * 1e6:.2f} µs to enter and leave, at most 3 ({what})", seconds <= 3e-6)
            for what, seconds in (("the scope is kept", kept), ("made for each run", made))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seed", type=int, default=6, help="of the first model that is drawn")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}, empty, {DRAWN}SEED; all and four that are drawn unless named")
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.models or [*MODELS, *(f"{DRAWN}{arguments.seed + i}" for i in range(4)), "empty"]:
        if name == "empty":
            print("10,000 empty replays")
            missed += say(judge_empty())
            continue
        figures = berth_figures.compare([sys.executable, os.path.abspath(__file__), "--work", name], arguments.repeats)
        berth_figures.show(name, figures)
        missed += say(judge(name, figures))
    sys.exit(1 if arguments.check and missed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        berth_figures.work(sys.argv[3], lambda: make(sys.argv[2]))
    else:
        main()
