#!/usr/bin/env python3
"""A CNN that serves requests of varying batch, on PyTorch's own allocator, tcmalloc, Berth's pool and plans of Berth's.

    PYTHONPATH=build/bindings/pytorch OMP_NUM_THREADS=1 /usr/bin/python3 examples/pytorch/serve.py [IMAGE SIZE]

A run answers five requests, of 1, 4, 2, 8 and 1 images. Here berth_torch.planned does it all: a plan for each shape, recorded
by itself, all in one block. The columns are those of figures.py; `planned` is the largest plan.
"""
import sys

import torch
import torchvision

import berth_figures

SIZE = next((int(word) for word in sys.argv[1:] if word.isdigit()), 96)
BATCHES = (1, 4, 2, 8, 1)


def make_run(planned=lambda model: model):
    torch.manual_seed(1)
    model, images = torchvision.models.mobilenet_v2().eval(), torch.rand(max(BATCHES), 3, SIZE, SIZE)
    answer = planned(model)

    def run():
        with torch.no_grad():
            return [answer(images[:batch]).argmax(1).tolist() for batch in BATCHES]
    return run


if __name__ == "__main__":
    berth_figures.main(make_run, f"mobilenet_v2 {SIZE}, served", plans_itself=True)
