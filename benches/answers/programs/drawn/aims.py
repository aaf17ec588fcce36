"""How a drawn program begins and ends: what it reads, and its loss."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from programs.drawn.block import Block
from programs.program import wide
from torch import nn


class Aim(Block):
    """Maps what the blocks made to a loss. `aims` are what it should be: classes of each place, and numbers of each."""

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The mean over all places; `x` (batch, places, width), classes below 24 (batch, places), numbers (batch, places, 6)."""
        raise NotImplementedError


class Classes(Aim):
    """Cross entropy of each place."""

    ways = ("by hand", "gathered", "products")
    mistakes = {"smoothed": ("argument", "structure"), "summed": ("argument", "structure"), "next": ("structure", "input"), "heat": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.head = nn.Linear(self.width, 24, bias=draw.random() < 0.5)
        self.smoothing = draw.choice((0.0, 0.1))

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if self.way == "products":
            logits = x @ self.head.weight.T
            logits = logits if self.head.bias is None else logits + self.head.bias
        else:
            logits = self.head(x)
        logits, aims = wide(logits).flatten(0, 1), classes
        if self.way == "next":
            aims = aims.roll(1, 1)
        if self.way == "heat":
            logits = logits / 0.8
        aims = aims.flatten()
        if self.way in ("by hand", "gathered"):
            shares = logits.log_softmax(-1) if self.way == "gathered" else logits - logits.logsumexp(-1, keepdim=True)
            hit = -shares.gather(1, aims[:, None]).mean()
            return (1 - self.smoothing) * hit - self.smoothing * shares.mean() if self.smoothing else hit
        smoothing = 0.2 if self.way == "smoothed" else self.smoothing
        return F.cross_entropy(logits, aims, label_smoothing=smoothing, reduction="sum" if self.way == "summed" else "mean")


class Numbers(Aim):
    """Distance from numbers."""

    ways = ("by hand", "means")
    mistakes = {"kind": ("structure", "argument"), "beta": ("argument", "structure"), "shifted": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.head, self.kind = nn.Linear(self.width, 6), draw.choice(("square", "huber", "smooth"))

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        out, aims = wide(self.head(x)), wide(numbers)
        if self.way == "shifted":
            aims = aims.roll(1, 1)
        gap = out - aims
        if self.way == "kind":
            return F.l1_loss(out, aims)
        beta = 0.5 if self.way == "beta" else 1.0
        if self.kind == "square":
            if self.way == "by hand":
                return gap.pow(2).sum() / gap.numel()
            return gap.square().mean() * beta if self.way in ("means", "beta") else F.mse_loss(out, aims)
        if self.way in ("by hand", "means"):
            small = gap.abs() < 1
            each = torch.where(small, 0.5 * gap.square(), gap.abs() - 0.5)
            return each.mean() if self.way == "means" else each.sum() / each.numel()
        return F.huber_loss(out, aims, delta=beta) if self.kind == "huber" else F.smooth_l1_loss(out, aims, beta=beta)


class Labels(Aim):
    """Several labels of each place, each true or not."""

    ways = ("by hand", "softplus")
    mistakes = {"probabilities": ("structure", "input"), "weight": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.head = nn.Linear(self.width, 6)
        self.register_buffer("weights", torch.rand(6) + 0.5)

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        out, aims, weights = wide(self.head(x)), wide((numbers > 0).to(x.dtype)), wide(self.weights)
        if self.way == "by hand":
            return -(weights * aims * F.logsigmoid(out) + (1 - aims) * F.logsigmoid(-out)).mean()
        if self.way == "softplus":
            return (weights * aims * F.softplus(-out) + (1 - aims) * F.softplus(out)).mean()
        if self.way == "probabilities":
            out = out.sigmoid()
        return F.binary_cross_entropy_with_logits(out, aims, pos_weight=None if self.way == "weight" else weights)


class Pairs(Aim):
    """What the two halves of the places have in common has to be told from that of other rows."""

    ways = ("by hand", "norms", "one by one")
    mistakes = {"heat": ("argument", "structure", "input"), "one side": ("structure",), "raw": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.head, self.heat = nn.Linear(self.width, 16, bias=False), draw.choice((2.0, 5.0))

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        h = self.head(x)
        half = h.shape[1] // 2
        a, b = h[:, :half].mean(1), h[:, half:].mean(1)
        a, b = wide(a), wide(b)
        if self.way == "norms":
            a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        elif self.way != "raw":
            a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        heat = self.heat * (1.5 if self.way == "heat" else 1)
        scores = torch.stack([(row * b).sum(-1) for row in a]) * heat if self.way == "one by one" else a @ b.T * heat
        right = torch.arange(len(a))
        if self.way == "by hand":
            return -(scores.log_softmax(1).diagonal().mean() + scores.log_softmax(0).diagonal().mean()) / 2
        if self.way == "one side":
            return F.cross_entropy(scores, right)
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2


class Likelihood(Aim):
    """Numbers with a spread that is told as well."""

    ways = ("by hand", "distribution")
    mistakes = {"deviation": ("structure", "argument", "input"), "unspread": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.head = nn.Linear(self.width, 12)

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        mean, spread = wide(self.head(x)).chunk(2, -1)
        variance, aims = F.softplus(spread) + 0.1, wide(numbers)
        if self.way == "unspread":
            return 0.5 * F.mse_loss(mean, aims)
        if self.way == "distribution":
            told = torch.distributions.Normal(mean, variance.sqrt(), validate_args=False)
            return -told.log_prob(aims).mean() - 0.5 * torch.log(torch.tensor(2 * torch.pi, dtype=mean.dtype))
        if self.way == "by hand":
            return 0.5 * (variance.log() + (mean - aims).square() / variance).mean()
        return F.gaussian_nll_loss(mean, aims, variance.square() if self.way == "deviation" else variance)


class Teacher(Aim):
    """Comes near to the shares that a fixed map tells."""

    ways = ("by hand", "shares")
    mistakes = {"turned": ("structure", "input"), "heat": ("structure", "argument", "input"), "averaged": ("argument", "structure")}

    def build(self, draw: random.Random) -> None:
        self.head = nn.Linear(self.width, 24)
        self.register_buffer("teacher", torch.randn(6, 24))
        self.heat = draw.choice((1.0, 2.0))

    def loss(self, x: torch.Tensor, classes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        heat = 1.4 if self.way == "heat" else self.heat
        mine = (wide(self.head(x)) / heat).log_softmax(-1).flatten(0, 1)
        theirs = (wide(numbers @ self.teacher) / self.heat).log_softmax(-1).flatten(0, 1)
        if self.way == "by hand":
            return (theirs.exp() * (theirs - mine)).sum(-1).mean()
        if self.way == "shares":
            return F.kl_div(mine, theirs.exp(), reduction="batchmean")
        if self.way == "turned":
            mine, theirs = theirs, mine
        return F.kl_div(mine, theirs, log_target=True, reduction="mean" if self.way == "averaged" else "batchmean")


AIMS: tuple[type[Aim], ...] = (Classes, Classes, Numbers, Labels, Pairs, Likelihood, Teacher)
