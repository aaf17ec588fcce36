"""Programs of lists and of many inputs: offers in an order, and few latents that read a long input."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm, wide
from torch import nn


class Offers(Program):
    """Lists of offers, ordered by crossed features; losses by lists and by pairs."""

    broad = True
    optimizers = ("adagrad",)
    mistakes = {
        "mode": ("argument", "structure"), "cross": ("structure", "input"), "heat": ("argument", "structure"), "masked": ("structure", "argument", "input"),
        "pairs": ("structure", "input", "argument"), "margin": ("argument", "structure"), "log": ("structure", "argument"), "norm": ("structure", "argument"),
        "labels": ("input", "argument", "structure"), "unloaded": ("input",), "decay": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("bag by hand", "low rank", "filled", "pairs by indices", "log by hand", "joined by sums")

    def build(self) -> None:
        self.words = nn.EmbeddingBag(30, 12, mode=str(self.choose("mode", "max", "sum")))
        self.shop = nn.Embedding(7, 8)
        self.cross = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.norm = nn.BatchNorm1d(24)
        self.deep = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16))
        self.out = nn.Linear(40, 1, bias=False)

    def forgotten(self) -> nn.Parameter:
        return self.cross[1].weight

    def options(self) -> dict[str, float]:
        return {"lr_decay": 0.5} if self.variant == "decay" else {}

    def scored(self, step: int) -> torch.Tensor:
        words, shop, numbers = self.numbers(step, 30, 48, 5), self.numbers(step, 7, 48, stream=1), self.normal(step, 48, 4)
        if self.variant == "bag by hand":
            bag = F.embedding(words, self.words.weight).sum(1)
        else:
            bag = self.words(words)
        numbers = numbers if self.variant == "log" else numbers.sign() * numbers.abs().log1p()
        start = torch.cat([bag, self.shop(shop), numbers], -1)
        start = start if self.variant == "norm" else self.norm(start)
        x = start
        for layer in self.cross:
            crossed = F.linear(x, layer.weight) + layer.bias if self.variant == "low rank" else layer(x)
            x = (x if self.variant == "cross" else start) * crossed + x
        deep = self.deep(start)
        if self.variant == "joined by sums":
            return (F.linear(x, self.out.weight[:, :24]) + F.linear(deep, self.out.weight[:, 24:])).view(6, 8)
        return self.out(torch.cat([x, deep], -1)).view(6, 8)

    def loss(self, step: int) -> torch.Tensor:
        score = wide(self.scored(step))
        grade = self.numbers(step, 4, 6, 8, stream=2).float()
        grade = grade.flip(1) if self.variant == "labels" else grade
        there = self.numbers(step, 8, 6, 1, stream=3) + 2 > torch.arange(8)
        there = torch.ones_like(there) if self.variant == "masked" else there
        heat = 2.0 if self.variant == "heat" else 1.0
        if self.variant == "filled":
            hidden = torch.where(there, score, torch.full_like(score, -1e9))
        else:
            hidden = score.masked_fill(~there, -1e9)
        aim = (grade / heat).masked_fill(~there, -1e9).softmax(-1)
        if self.variant == "log by hand":
            top = hidden.amax(-1, keepdim=True)
            listed = -(aim * (hidden - top - (hidden - top).exp().sum(-1, keepdim=True).log())).sum(-1).mean()
        else:
            listed = -(aim * hidden.log_softmax(-1)).sum(-1).mean()
        margin = 0.3 if self.variant == "margin" else 1.0
        better = (grade[:, :, None] > grade[:, None]) & there[:, :, None] & there[:, None]
        if self.variant == "pairs by indices":
            row, a, b = better.nonzero(as_tuple=True)
            lost = F.relu(margin - (score[row, a] - score[row, b])).sum()
        else:
            gap = score[:, None] - score[:, :, None] if self.variant == "pairs" else score[:, :, None] - score[:, None]
            lost = (F.relu(margin - gap) * better).sum()
        return listed + 0.1 * lost / 48


class Reader(Program):
    """Few latents that read a long input by cross attention, think, and are read by queries of places."""

    broad = True
    optimizers = ("nadam",)
    mistakes = {
        "bands": ("argument", "input", "structure"), "scale": ("argument", "structure"), "shared": ("structure", "input"), "order": ("structure", "argument"),
        "normed": ("structure", "input"), "phase": ("structure", "argument", "input"), "gate": ("structure", "argument"), "eps": ("argument",),
        "half": ("structure", "argument", "dtype"), "unloaded": ("input",), "momentum": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("attention by hand", "einsum", "bands by a table", "keys and values at once", "gate by hand", "repeated")

    def build(self) -> None:
        eps = float(self.choose("eps", 1e-2, 1e-6))
        self.latents = nn.Parameter(0.3 * torch.randn(8, 32))
        self.norms = nn.ModuleList(RootNorm(32, eps) for _ in range(6))
        self.enter = nn.Linear(3 + 12, 32)
        self.q, self.k, self.v, self.o = (nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3)) for _ in range(4))
        self.up = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(48, 32) for _ in range(2))
        self.places = nn.Linear(12, 32)
        self.out = nn.Linear(32, 3)

    def forgotten(self) -> nn.Parameter:
        return self.k[0].weight

    def options(self) -> dict[str, float]:
        return {"momentum_decay": 0.1} if self.variant == "momentum" else {}

    def waves(self, at: torch.Tensor) -> torch.Tensor:
        bands = 2.0 ** torch.arange(6, dtype=torch.float64) if self.variant != "bands" else torch.linspace(1, 32, 6, dtype=torch.float64)
        if self.variant == "bands by a table":
            bands = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=torch.float64)
        angles = at.double()[:, None] * bands * math.pi
        both = torch.cat([angles.cos(), angles.sin()] if self.variant == "phase" else [angles.sin(), angles.cos()], -1)
        return both.to(self.latents.dtype)

    def read(self, i: int, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        if self.variant == "keys and values at once":
            k, v = F.linear(given, torch.cat([self.k[i].weight, self.v[i].weight])).chunk(2, -1)
        else:
            k, v = self.k[i](given), self.v[i](given)
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.q[i](x), k, v))
        scale = 1 / math.sqrt(32 if self.variant == "scale" else 8)
        if self.variant == "attention by hand":
            made = (wide(q @ k.mT) * scale).softmax(-1).to(v.dtype) @ v
        elif self.variant == "einsum":
            made = torch.einsum("bhqk,bhkd->bhqd", (wide(torch.einsum("bhqd,bhkd->bhqk", q, k)) * scale).softmax(-1).to(v.dtype), v)
        elif self.variant == "half":
            made = F.scaled_dot_product_attention(q.half(), k.half(), v.half(), scale=scale).to(q.dtype)
        else:
            made = F.scaled_dot_product_attention(q, k, v, scale=scale)
        made = made.transpose(1, 2)
        return self.o[i](made.transpose(2, 3).flatten(2) if self.variant == "order" else made.flatten(2))

    def think(self, i: int, x: torch.Tensor) -> torch.Tensor:
        a, b = self.up[i](self.norms[3 + i](x)).chunk(2, -1)
        if self.variant == "gate by hand":
            return x + self.down[i](a * torch.sigmoid(a) * b)
        return x + self.down[i](F.silu(b) * a if self.variant == "gate" else F.silu(a) * b)

    def loss(self, step: int) -> torch.Tensor:
        at = torch.linspace(-1, 1, 40)
        seen = self.normal(step, 6, 40, 3)
        waves = self.waves(at)
        given = self.enter(torch.cat([seen, waves.expand(6, 40, 12)], -1))
        x = self.latents.repeat(6, 1, 1) if self.variant == "repeated" else self.latents.expand(6, 8, 32)
        x = x + self.read(0, self.norms[0](x), self.norms[1](given))
        x = self.think(0, x)
        h = x if self.variant == "normed" else self.norms[2](x)
        x = x + self.read(0 if self.variant == "shared" else 1, h, h)
        x = self.think(1, x)
        asked = self.places(waves).expand(6, 40, 32)
        made = self.out(self.read(2, asked, self.norms[5](x)))
        return F.smooth_l1_loss(wide(made), wide(seen), beta=0.5)


PROGRAMS = {"offers": Offers, "reader": Reader}
