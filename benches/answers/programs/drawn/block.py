"""A part of a drawn program: its options are drawn, and it may be written in other ways or with a mistake."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Keeps the shape of what it reads: (batch, places, width), or (batch, width, height, breadth).

    `way` is empty for the block as it is, else one of `ways` or `mistakes`. A mistake has the causes that are right for it. Weights
    and their order are the same in every way.
    """

    ways: tuple[str, ...] = ()
    mistakes: dict[str, tuple[str, ...]] = {}

    def __init__(self, draw: random.Random, width: int, way: str) -> None:
        super().__init__()
        self.width, self.way = width, way
        self.build(draw)

    def build(self, draw: random.Random) -> None:
        """Draws the options and makes the modules."""
        raise NotImplementedError

    def lacks(self, *names: str) -> None:
        """With the options that were drawn, these ways and mistakes change nothing."""
        self.ways = tuple(way for way in self.ways if way not in names)
        self.mistakes = {name: causes for name, causes in self.mistakes.items() if name not in names}


#: Activations by name, each with its formula.
ACTIVATIONS = {
    "gelu": (F.gelu, lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5))),
    "tanh gelu": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: x * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    ),
    "silu": (F.silu, lambda x: x * torch.sigmoid(x)),
    "relu": (F.relu, lambda x: x.clamp(min=0)),
    "squared relu": (lambda x: F.relu(x).square(), lambda x: x.clamp(min=0) ** 2),
    "mish": (F.mish, lambda x: x * torch.tanh(F.softplus(x))),
    "tanh": (torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1),
    "elu": (F.elu, lambda x: torch.where(x > 0, x, x.clamp(max=0).exp() - 1)),
    "leaky relu": (F.leaky_relu, lambda x: torch.maximum(x, 0.01 * x)),
}


def activation(draw: random.Random) -> str:
    return draw.choice(sorted(ACTIVATIONS))


def another(name: str) -> str:
    """The activation that a user takes by mistake in place of this one."""
    names = sorted(ACTIVATIONS)
    return names[(names.index(name) + 4) % len(names)]


class Norm(Block):
    """Norms the width, or all of a group of it."""

    ways = ("by hand",)
    mistakes = {"eps": ("argument",)}

    def build(self, draw: random.Random) -> None:
        self.kind = draw.choice(("layer", "layer", "root", "group", "no bias"))
        self.eps = 10.0 ** draw.choice((-6, -5))
        self.eps = 3e-2 if self.way == "eps" else self.eps
        self.weight = nn.Parameter(torch.rand(self.width) * 0.5 + 0.75)
        self.bias = nn.Parameter(torch.randn(self.width) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.kind in ("root", "no bias") else self.bias
        shape = (self.width,)
        if self.kind == "group":
            groups = x.unflatten(-1, (4, -1))
            if self.way == "by hand":
                centred = groups - groups.mean(-1, keepdim=True)
                normed = centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()
            else:
                normed = F.layer_norm(groups, groups.shape[-1:], None, None, self.eps)
            return normed.flatten(-2) * self.weight + bias
        if self.kind == "root":
            if self.way == "by hand":
                return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
            return F.rms_norm(x, shape, self.weight, self.eps)
        if self.way == "by hand":
            variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
            normed = (x - mean) * torch.rsqrt(variance + self.eps) * self.weight
            return normed if bias is None else normed + bias
        return F.layer_norm(x, shape, self.weight, bias, self.eps)
