"""Batches of text-like tokens: drawn once, the same in every run."""

import torch

from model import CONTEXT, VOCABULARY

BATCH = 4


def batches(steps):
    generator = torch.Generator().manual_seed(99)
    # Some words are frequent, as in any text.
    weights = 1.0 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    drawn = []
    for _ in range(steps):
        tokens = torch.multinomial(weights, BATCH * CONTEXT, replacement=True, generator=generator)
        drawn.append(tokens.reshape(BATCH, CONTEXT))
    return drawn
