"""A small GPT-2 of transformers, with a feed-forward block and a loss of its own: what a team changes day by day."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS = 3
WIDTH = 96
VOCABULARY = 512
CONTEXT = 64


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.up(x)
        y = F.gelu(y, approximate="tanh")
        return self.down(y)


class Loss(nn.Module):
    def forward(self, logits, tokens):
        logits = logits[:, :-1].reshape(-1, VOCABULARY)
        return F.cross_entropy(logits, tokens[:, 1:].reshape(-1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        config = GPT2Config(
            n_layer=LAYERS,
            n_embd=WIDTH,
            n_head=4,
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="eager",
            use_cache=False,
        )
        self.gpt = GPT2LMHeadModel(config)
        for block in self.gpt.transformer.h:
            block.mlp = FeedForward(WIDTH)
        self.loss = Loss()

    def forward(self, tokens):
        logits = self.gpt(tokens).logits
        return self.loss(logits, tokens)
