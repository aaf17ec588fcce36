"""Blocks that see each place of a sequence alone, or what all places have in common."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from programs.drawn.block import ACTIVATIONS, Block, activation, another
from torch import nn


class Perceptron(Block):
    """Two maps with an activation between them, gated or not."""

    ways = ("products", "convolved", "formula", "halves")
    mistakes = {"activation": ("structure", "argument"), "gate": ("structure", "input"), "no bias": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.gated, self.kind = draw.random() < 0.4, activation(draw)
        self.lacks(*[] if self.gated else ["gate"])
        inner = self.width * draw.choice((1, 2, 3))
        self.up, self.down = nn.Linear(self.width, inner * (2 if self.gated else 1)), nn.Linear(inner, self.width)

    def active(self, x: torch.Tensor) -> torch.Tensor:
        kind = another(self.kind) if self.way == "activation" else self.kind
        return ACTIVATIONS[kind][self.way == "formula"](x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up, down = self.up, self.down
        if self.way == "convolved":
            h = F.conv1d(x.mT, up.weight[..., None], up.bias).mT
        elif self.way == "products":
            h = x @ up.weight.T + up.bias
        elif self.way == "halves":
            h = torch.cat([F.linear(x, w, b) for w, b in zip(up.weight.chunk(2), up.bias.chunk(2), strict=True)], -1)
        else:
            h = up(x)
        if self.gated:
            a, b = h.chunk(2, -1)
            h = a * self.active(b) if self.way == "gate" else self.active(a) * b
        else:
            h = self.active(h)
        if self.way == "products":
            return torch.addmm(down.bias, h.flatten(0, -2), down.weight.T).view_as(x)
        return F.linear(h, down.weight) if self.way == "no bias" else down(h)


class Mixture(Block):
    """A few small perceptrons, of which a router takes the best for each place."""

    ways = ("all of them", "sorted", "stacked")
    mistakes = {"one": ("argument", "structure", "input"), "shares": ("structure", "input"), "sigmoid": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.count, self.best = draw.choice((3, 4)), 2
        self.router = nn.Linear(self.width, self.count, bias=False)
        self.ups = nn.Parameter(torch.randn(self.count, self.width, self.width) / self.width**0.5)
        self.downs = nn.Parameter(torch.randn(self.count, self.width, self.width) / self.width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        scores = self.router(flat)
        shares = scores.sigmoid() if self.way == "sigmoid" else scores.softmax(-1)
        top, which = shares.topk(1 if self.way == "one" else self.best, -1)
        if self.way != "shares":
            top = top / top.sum(-1, keepdim=True)
        ups, downs = self.ups.to(flat.dtype), self.downs.to(flat.dtype)
        if self.way in ("all of them", "stacked"):
            weights = torch.zeros_like(shares).scatter(1, which, top).to(flat.dtype)
            if self.way == "stacked":
                every = F.silu(flat @ ups) @ downs
                return torch.einsum("te,etd->td", weights.to(every.dtype), every).view_as(x)
            return sum(weights[:, i, None] * (F.silu(flat @ ups[i]) @ downs[i]) for i in range(self.count)).view_as(x)
        out = torch.zeros_like(flat)
        if self.way == "sorted":
            order = which.flatten().argsort(stable=True)
            rows = order // which.shape[1]
            ends = torch.bincount(which.flatten(), minlength=self.count).cumsum(0).tolist()
            found = []
            for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False)):
                found.append(F.silu(flat[rows[a:b]] @ ups[i]) @ downs[i])
            weighted = torch.cat(found) * top.flatten()[order, None].to(flat.dtype)
            return out.index_add(0, rows, weighted.to(out.dtype)).view_as(x)
        for i in range(self.count):
            row, place = torch.where(which == i)
            found = F.silu(flat[row] @ ups[i]) @ downs[i]
            out = out.index_add(0, row, (found * top[row, place, None]).to(out.dtype))
        return out.view_as(x)


class Lookup(Block):
    """A soft lookup in a table of keys and values."""

    ways = ("log shares", "distances", "sums")
    mistakes = {"heat": ("argument", "structure", "input"), "over places": ("argument",)}

    def build(self, draw: random.Random) -> None:
        self.keys = nn.Parameter(torch.randn(12, self.width) / self.width**0.5)
        self.values = nn.Parameter(torch.randn(12, self.width) * 0.5)
        self.heat = draw.choice((0.5, 1.0, 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heat = 1.5 * self.heat if self.way == "heat" else self.heat
        if self.way == "distances":
            # The square of what asks is common to all keys.
            gaps = torch.cdist(x, self.keys.to(x.dtype), compute_mode="donot_use_mm_for_euclid_dist").square()
            scores = (self.keys.square().sum(-1) - gaps) / (2 * heat)
        else:
            scores = F.linear(x, self.keys) / heat
        if self.way == "log shares":
            shares = scores.log_softmax(-1).exp()
        elif self.way == "sums":
            grown = (scores - scores.amax(-1, keepdim=True).detach()).exp()
            shares = grown / grown.sum(-1, keepdim=True)
        else:
            shares = scores.softmax(1 if self.way == "over places" else -1)
        return shares.to(self.values.dtype) @ self.values


class Gate(Block):
    """Scales channels by what all places have in common."""

    ways = ("pooled", "sums")
    mistakes = {"summed": ("structure", "argument"), "largest": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.down, self.up = nn.Linear(self.width, self.width // 4), nn.Linear(self.width // 4, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "pooled":
            seen = F.adaptive_avg_pool1d(x.mT, 1).squeeze(-1)
        elif self.way == "sums":
            seen = x.sum(1) / x.shape[1]
        elif self.way == "summed":
            seen = x.sum(1)
        else:
            seen = x.amax(1) if self.way == "largest" else x.mean(1)
        return x * self.up(self.down(seen).relu()).sigmoid()[:, None]


class Adapter(Block):
    """A fixed map, and a small one beside it that is trained."""

    ways = ("merged", "apart")
    mistakes = {"scale": ("argument", "structure", "input"), "left out": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.fixed = nn.Linear(self.width, self.width)
        self.fixed.requires_grad_(False)
        self.down, self.up = nn.Linear(self.width, 4, bias=False), nn.Linear(4, self.width, bias=False)
        self.scale = draw.choice((0.5, 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.scale * (1.25 if self.way == "scale" else 1)
        if self.way == "merged":
            return F.linear(x, self.fixed.weight + self.up.weight @ self.down.weight * scale, self.fixed.bias)
        if self.way == "left out":
            return self.fixed(x)
        added = self.up(self.down(x * scale)) if self.way == "apart" else self.up(self.down(x)) * scale
        return self.fixed(x) + added


class Likeness(Block):
    """Compares each place with a few directions."""

    ways = ("cosines", "roots")
    mistakes = {"eps": ("argument",), "raw": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.ends = nn.Parameter(torch.randn(10, self.width))
        self.after = nn.Linear(10, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = self.ends.to(x.dtype)
        if self.way == "cosines":
            like = F.cosine_similarity(x[..., None, :], ends, dim=-1)
        elif self.way == "roots":
            like = (x @ ends.T) / (x.square().sum(-1, keepdim=True).sqrt() * ends.square().sum(-1).sqrt())
        elif self.way == "raw":
            like = x @ F.normalize(ends, dim=-1).T
        else:
            like = F.normalize(x, dim=-1, eps=20.0 if self.way == "eps" else 1e-12) @ F.normalize(ends, dim=-1).T
        return self.after(like.to(x.dtype))


MAPS: tuple[type[Block], ...] = (Perceptron, Perceptron, Perceptron, Mixture, Lookup, Gate, Adapter, Likeness)
