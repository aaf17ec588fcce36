"""Blocks of what fewer programs have: own gradients, memory written in place, graphs, products of shares, rounded values."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F
from programs.drawn.block import Block
from torch import nn


class OwnGradient(torch.autograd.Function):
    """`x * tanh(x)`, with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, wrong: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.wrong = wrong
        return x * x.tanh()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        tanh = x.tanh()
        inner = 1 - tanh if ctx.wrong else 1 - tanh.square()
        return grad * (tanh + x * inner), None


class Formula(Block):
    """A function with a gradient of its own between two maps."""

    ways = ("by autograd",)
    mistakes = {"gradient": ("structure", "gradient", "input")}

    def build(self, draw: random.Random) -> None:
        self.up, self.down = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        h = h * h.tanh() if self.way == "by autograd" else OwnGradient.apply(h, self.way == "gradient")
        return self.down(h)


class InPlace(Block):
    """Writes into memory that it made."""

    ways = ("out of place", "stacked")
    mistakes = {"order": ("structure", "input"), "kept": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.map = nn.Linear(self.width, self.width)
        self.shift = nn.Parameter(torch.randn(self.width) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[1] // 2
        if self.way == "out of place":
            h = F.relu(self.map(x) + self.shift)
            return torch.cat([h[:, :half] * 0.5, h[:, half:]], 1)
        if self.way == "stacked":
            h = self.map(x).add(self.shift).relu()
            scale = torch.cat([torch.full((half, 1), 0.5), torch.ones(x.shape[1] - half, 1)]).to(h.dtype)
            return h * scale
        h = self.map(x)
        if self.way == "order":
            h = h.relu().add(self.shift)
        else:
            h.add_(self.shift)
            h = h.relu_()
        out = torch.zeros_like(h)
        out[:, :half] = h[:, :half] if self.way == "kept" else h[:, :half] * 0.5
        out[:, half:] = h[:, half:]
        return out


class Messages(Block):
    """Each place gets what its neighbours in a fixed graph send."""

    ways = ("matrix", "scattered", "sorted")
    mistakes = {"turned": ("structure", "input", "argument"), "summed": ("structure",), "own": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.send, self.take = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)
        self.edges = [(a, draw.randrange(10)) for a in range(10) for _ in range(3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sent, length = self.send(x).relu(), x.shape[1]
        source, target = torch.tensor(self.edges).T
        if self.way == "turned":
            source, target = target, source
        if self.way == "matrix":
            share = torch.zeros(length, length, dtype=x.dtype).index_put((target, source), torch.ones(len(source), dtype=x.dtype), accumulate=True)
            counts = share.sum(1, keepdim=True).clamp(min=1)
            return self.take((share / counts).to(sent.dtype) @ sent)
        counts = torch.bincount(target, minlength=length).clamp(min=1)[:, None]
        if self.way == "sorted":
            order = target.argsort(stable=True)
            source, target = source[order], target[order]
        picked = sent[:, source]
        if self.way == "scattered":
            place = target[:, None].expand(len(x), -1, self.width)
            total = torch.zeros_like(sent).scatter_add(1, place, picked)
        else:
            total = torch.zeros_like(sent).index_add(1, target, picked)
        if self.way == "own":
            total = total + sent
        return self.take(total if self.way == "summed" else total / counts)


class Passage(Block):
    """Shares of what passes all places before, as light passes a scene."""

    ways = ("logarithms", "loop")
    mistakes = {"open": ("structure", "input"), "thin": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.thick, self.colour = nn.Linear(self.width, 1), nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = 0.1 if self.way == "thin" else 0.2
        dense = F.softplus(self.thick(x)) * step
        stopped = 1 - torch.exp(-dense)
        if self.way == "logarithms":
            left = torch.exp(dense - dense.cumsum(1))
        elif self.way == "loop":
            now, parts = torch.ones_like(dense[:, 0]), []
            for i in range(x.shape[1]):
                parts.append(now)
                now = now * (1 - stopped[:, i])
            left = torch.stack(parts, 1)
        elif self.way == "open":
            left = (1 - stopped).cumprod(1)
        else:
            left = torch.cat([torch.ones_like(dense[:, :1]), (1 - stopped).cumprod(1)[:, :-1]], 1)
        return self.colour(x) * (left * stopped)


class Rounded(Block):
    """Keeps few values, and passes the gradient through."""

    ways = ("detached", "floor")
    mistakes = {"steps": ("argument", "structure", "input"), "no gradient": ("structure", "gradient")}

    def build(self, draw: random.Random) -> None:
        self.up, self.down = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)
        self.steps = draw.choice((4.0, 8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x).tanh()
        steps = self.steps * (1.5 if self.way == "steps" else 1)
        kept = (h * steps + 0.5).floor() / steps if self.way == "floor" else (h * steps).round() / steps
        if self.way == "no gradient":
            return self.down(kept)
        return self.down(kept.detach() + h - h.detach() if self.way == "detached" else h + (kept - h).detach())


class Constrained(Block):
    """A map whose weight has unit rows times a length."""

    ways = ("by hand",)
    mistakes = {"columns": ("structure", "argument", "input")}

    def build(self, draw: random.Random) -> None:
        # The parametrization of torch has a kernel whose rounding depends on where memory lies.
        self.map, self.after = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)
        self.length = nn.Parameter(torch.rand(self.width, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        way, dim = self.map.weight, 0 if self.way == "columns" else 1
        rows = way / way.square().sum(dim, keepdim=True).sqrt() if self.way == "by hand" else F.normalize(way, dim=dim)
        return self.after(F.linear(x, self.length * rows, self.map.bias).relu())


class Island(Block):
    """A part that is computed in float32 whatever the rest is in."""

    ways = ("products", "one map")
    mistakes = {"centre": ("structure", "input"), "root": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.left, self.right = nn.Linear(self.width, 8, bias=False), nn.Linear(self.width, 8, bias=False)
        self.after = nn.Linear(64, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "one map":
            a, b = F.linear(x, torch.cat([self.left.weight, self.right.weight])).chunk(2, -1)
        else:
            a, b = self.left(x), self.right(x)
        with torch.autocast("cpu", enabled=False):
            kind = torch.float64 if x.dtype == torch.float64 else torch.float32
            a, b = a.to(kind), b.to(kind)
            if self.way == "centre":
                a = a - a.mean(1, keepdim=True)
            outer = a[..., None] * b[..., None, :] if self.way == "products" else torch.einsum("...i,...j->...ij", a, b)
            outer = outer.flatten(-2)
            signs = outer.sign() * outer.abs().add(1e-4).sqrt() if self.way != "root" else outer
            made = F.normalize(signs, dim=-1)
        return self.after(made.to(self.after.weight.dtype))


class Chosen(Block):
    """Each row keeps its strongest places, in order."""

    ways = ("masked", "sorted")
    mistakes = {"weakest": ("argument", "input"), "one less": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.score, self.map = nn.Linear(self.width, 1), nn.Linear(self.width, self.width)
        self.count = draw.choice((4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = self.score(x).squeeze(-1)
        count = self.count - (self.way == "one less")
        if self.way == "sorted":
            which = score.sort(1, descending=True)[1][:, :count]
        else:
            which = score.topk(count, 1, largest=self.way != "weakest")[1]
        gate = score.sigmoid()
        if self.way == "masked":
            keep = torch.zeros_like(score).scatter(1, which, 1.0)
            return self.map(x) * (gate * keep)[..., None]
        place = which[..., None].expand(-1, -1, self.width)
        part = self.map(x.gather(1, place)) * gate.gather(1, which)[..., None]
        return torch.zeros_like(x).scatter(1, place, part.to(x.dtype))


RARITIES: tuple[type[Block], ...] = (Formula, InPlace, Messages, Passage, Rounded, Constrained, Island, Chosen)
