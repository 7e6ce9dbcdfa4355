#!/usr/bin/env python3
"""A small GPT that decodes with growing caches, on PyTorch's own allocator, tcmalloc, Berth's pool and a plan of Berth's.

    PYTHONPATH=build/bindings/pytorch OMP_NUM_THREADS=1 /usr/bin/python3 examples/pytorch/gpt_decode.py [TOKENS]

A run decodes TOKENS tokens (default 64). At every token each layer's keys and values are copied into a cache that is one
longer, so that no two steps ask for the same sizes; the whole run is one plan. The columns are those of figures.py.
"""
import sys

import torch
from torch import nn

import berth_figures

TOKENS = next((int(word) for word in sys.argv[1:] if word.isdigit()), 64)
WIDTH, HEADS, LAYERS, WORDS = 256, 8, 4, 1000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cache):
        q, k, v = (part.view(x.shape[0], -1, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.qkv(self.before(x)).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        weights = (q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.feed(self.after(x)), (k, v)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, word, caches):
        x, kept = self.words(word), []
        for layer, cache in zip(self.layers, caches):
            x, cache = layer(x, cache)
            kept.append(cache)
        return x[:, -1] @ self.words.weight.t(), kept


def make_run():
    torch.manual_seed(1)
    model, start = GPT().eval(), torch.zeros(4, 1, dtype=torch.long)

    def run():
        with torch.no_grad():
            word, caches, said = start, [None] * LAYERS, []
            for _ in range(TOKENS):
                scores, caches = model(word, caches)
                word = scores.argmax(-1, keepdim=True)
                said.append(word[0, 0].item())
        return said
    return run


if __name__ == "__main__":
    berth_figures.main(make_run, f"GPT, {TOKENS} tokens")
