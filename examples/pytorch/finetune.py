#!/usr/bin/env python3
"""A step of fine-tuning with AdamW, on PyTorch's own allocator, tcmalloc, Berth's pool and a plan of Berth's.

    PYTHONPATH=build/bindings/pytorch OMP_NUM_THREADS=1 /usr/bin/python3 examples/pytorch/finetune.py [BATCH]

The first layers are frozen. Gradients go at the end of the step, not at the start of the next one: so they are tensors of
this run, which the plan has a place for, instead of outputs beside its block. AdamW makes its two moments in the first step
and keeps them; berth_figures lets two steps pass before it records, and berth_torch.planned records again by itself when
runs have settled. The columns are those of figures.py.
"""
import sys

import torch
from torch import nn

import berth_figures

BATCH = next((int(word) for word in sys.argv[1:] if word.isdigit()), 16)


def make_run():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    body, head = nn.TransformerEncoder(layer, 4), nn.Linear(128, 10)
    for frozen in list(body.layers)[:2]:
        frozen.requires_grad_(False)
    trained = [p for p in [*body.parameters(), *head.parameters()] if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-4)
    x, y = torch.rand(BATCH, 32, 128), torch.arange(BATCH) % 10

    def run():
        loss = nn.functional.cross_entropy(head(body(x).mean(1)), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return run


if __name__ == "__main__":
    berth_figures.main(make_run, f"AdamW, batch {BATCH}")
