#!/usr/bin/env python3
"""What a torchvision model costs on PyTorch's own allocator, tcmalloc, Berth's pool and a plan of Berth's.

    PYTHONPATH=build/bindings/pytorch OMP_NUM_THREADS=1 /usr/bin/python3 examples/pytorch/figures.py [MODEL [IMAGE SIZE]]

ms         the median of 30 turns, which alternate with the others' (one thread: processor time)
÷ default  the median of the ratios to the default's turn in the same round; ÷ pool likewise; spread: half of the ratios to
           the default lie within so much
faults     page faults a run, once all is warm
peak MiB   how much resident memory one run adds at most; planned: the plan's block; bound: what no plan can go below
"""
import sys

import torch
import torchvision

import berth_figures

words = [word for word in sys.argv[1:] if word not in (*berth_figures.PEERS, berth_figures.TOGETHER)]
name, size = words[0] if words else "mobilenet_v2", int(words[1]) if words[1:] else 224


def make_run():
    torch.manual_seed(1)
    model, image = torchvision.models.get_model(name).eval(), torch.rand(1, 3, size, size)

    def run():
        with torch.no_grad():
            model(image)
    return run


berth_figures.main(make_run, f"{name} {size}")
