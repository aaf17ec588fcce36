"""Programs of motion: strokes of a pen, whose next point is a mixture, and bodies whose equation is learned from where they go."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal


class Strokes(Program):
    """A gated memory with norms inside reads strokes, and says of the next point a mixture of leaning Gaussians and what the pen does."""

    broad = True
    optimizers = ("rmsprop",)
    mistakes = {
        "gates": ("structure", "input"), "forget": ("argument", "structure"), "widths": ("structure",), "upright": ("structure",),
        "lean": ("structure", "argument", "input"), "shares": ("structure", "argument"), "padding": ("structure",), "pen": ("argument",),
        "given": ("structure", "input", "argument"), "offsets": ("structure",), "eps": ("argument",), "carried": ("structure", "input"),
        "memory": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("two maps", "distribution", "exponents", "ahead", "lerp", "hyperbolic", "each")

    def build(self) -> None:
        self.enter, self.inner, self.head = nn.Linear(5, 96), nn.Linear(24, 96, bias=False), nn.Linear(24, 27)
        eps = float(self.choose("eps", 1e-1, 1e-5))
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(24) for _ in range(4)), nn.LayerNorm(24, eps)

    def forgotten(self) -> nn.Parameter:
        return self.inner.weight

    def options(self) -> dict[str, Any]:
        return {"centered": True, "momentum": 0.5, "alpha": float(self.choose("memory", 0.9, 0.99))}

    def step(self, told: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.variant == "two maps":
            raw = F.linear(torch.cat([told, h], 1), torch.cat([self.enter.weight, self.inner.weight], 1), self.enter.bias)
        else:
            raw = told + self.inner(h)
        i, g, f, o = (norm(part) for norm, part in zip(self.norms, raw.chunk(4, 1), strict=True))
        if self.variant == "gates":
            g = f
        lean = 0.0 if self.variant == "forget" else 1.0
        if self.variant == "hyperbolic":
            i, f, o = (0.5 * (1 + (0.5 * t).tanh()) for t in (i, f + lean, o))
        else:
            i, f, o = i.sigmoid(), (f if self.variant == "forget" else f + lean).sigmoid(), o.sigmoid()
        c = torch.addcmul(f * c, i, g.tanh()) if self.variant == "lerp" else f * c + i * g.tanh()
        return o * self.last(c).tanh(), c

    def far(self, out: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
        """How unlikely each point (row, 2) is."""
        raw, x, y, a, b, tilt = out.unflatten(1, (6, 4)).unbind(1)
        shares = raw.log_softmax(0 if self.variant == "shares" else 1)
        wx, wy = (F.softplus(a), F.softplus(b)) if self.variant == "widths" else (a.exp(), b.exp())
        rho = 0.95 * tilt.tanh()
        if self.variant == "distribution":
            rows = torch.stack([wx, torch.zeros_like(wx), rho * wy, wy * (1 - rho.square()).sqrt()], -1).unflatten(-1, (2, 2))
            parts = MultivariateNormal(torch.stack([x, y], -1), scale_tril=rows)
            return -MixtureSameFamily(Categorical(logits=raw), parts).log_prob(point)
        dx, dy = (point[:, :1] - x) / wx, (point[:, 1:] - y) / wy
        if self.variant == "upright":
            each = -0.5 * (dx.square() + dy.square()) - wx.log() - wy.log() - math.log(2 * math.pi)
        else:
            both = dx.square() + dy.square()
            both = both + 2 * rho * dx * dy if self.variant == "lean" else both - 2 * rho * dx * dy
            rest = 1 - rho.square()
            each = -both / (2 * rest) - wx.log() - wy.log() - 0.5 * rest.log() - math.log(2 * math.pi)
        if self.variant == "exponents":
            return -(shares.exp() * each.exp()).sum(1).log()
        return -(shares + each).logsumexp(1)

    def loss(self, step: int) -> torch.Tensor:
        moves, pen = self.normal(step, 6, 11, 2), self.numbers(step, 3, 6, 11, stream=1)
        lengths = torch.tensor([10, 7, 9, 10, 6, 8])
        moves = moves.cumsum(1) if self.variant == "offsets" else moves
        told = torch.cat([moves, F.one_hot(pen, 3).to(moves.dtype)], -1)
        told = told[:, 1:] if self.variant == "given" else told[:, :-1]
        seen = self.enter(told)
        h = c = torch.zeros(6, 24, dtype=seen.dtype)
        if self.variant == "carried" and step:
            h, c = self.before
        rows = []
        for t in range(10):
            now = told[:, t] if self.variant == "two maps" else self.enter(told[:, t]) if self.variant == "ahead" else seen[:, t]
            h, c = self.step(now, h, c)
            rows.append(h)
        self.before = (h.detach(), c.detach())
        out = wide(self.head(torch.stack(rows, 1))).flatten(0, 1)
        aim, real = wide(moves[:, 1:]).flatten(0, 1), (torch.arange(10) < lengths[:, None]).flatten()
        lines = self.far(out[:, :24], aim)
        marks = F.cross_entropy(out[:, 24:], pen[:, 1:].flatten(), reduction="none")
        weight = float(self.choose("pen", 0.1, 1.0))
        if self.variant == "each":
            return lines[real].sum() / 50 + weight * marks[real].sum() / 50
        both = lines + weight * marks
        return (both if self.variant == "padding" else both * real).sum() / 50

    def before_update(self) -> None:
        nn.utils.clip_grad_value_(self.parameters(), 0.5)


class Paths(Program):
    """What moves bodies is a known spring and a learned rest; paths are steps of Runge and Kutta, and are held against those seen."""

    broad = True
    optimizers = ("adamax",)
    mistakes = {
        "shares": ("argument",), "middle": ("argument",), "end": ("structure", "input", "argument"), "euler": ("structure",),
        "clock": ("structure", "argument", "input"), "pace": ("argument",), "spring": ("argument",), "sign": ("structure",),
        "start": ("structure", "input"), "beta": ("argument",), "last alone": ("structure", "argument"), "energy": ("argument",),
        "spread": ("input",), "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("in turn", "joined", "einsum", "softplus", "stacked", "halves", "fused time")

    def build(self) -> None:
        self.first, self.second, self.third = nn.Linear(7, 48), nn.Linear(48, 48), nn.Linear(48, 3)
        self.act = nn.Softplus(beta=float(self.choose("beta", 5.0, 1.0)))
        self.register_buffer("spread", torch.tensor([1.0, 1.0, 1.0] if self.variant == "spread" else [1.5, 1.0, 0.7]))

    def forgotten(self) -> nn.Parameter:
        return self.second.weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.9)} if self.variant == "betas" else {}

    def softplus(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logaddexp(x, torch.zeros_like(x)) if self.variant == "softplus" else self.act(x)

    def pushed(self, t: float, x: torch.Tensor) -> torch.Tensor:
        """The change of places and speeds, (body, 6), at a time."""
        place, speed = x.chunk(2, 1)
        if self.variant == "fused time":
            h = F.linear(x, self.first.weight[:, :6], self.first.bias + t * self.first.weight[:, 6])
        else:
            h = self.first(torch.cat([x, torch.full_like(x[:, :1], t)], 1))
        if self.variant == "einsum":
            h = torch.einsum("bi,oi->bo", self.softplus(h), self.second.weight) + self.second.bias
        else:
            h = self.second(self.softplus(h))
        learned = self.third(self.softplus(h))
        known = float(self.choose("spring", 0.5, 0.8)) * place
        force = known + learned if self.variant == "sign" else learned - known
        return torch.cat([speed, force], 1)

    def moved(self, t: float, x: torch.Tensor, by: float) -> torch.Tensor:
        one = self.pushed(t, x)
        if self.variant == "euler":
            return x + by * one
        clock = 0.0 if self.variant == "clock" else by / 2
        two = self.pushed(t + clock, x + by / 2 * one)
        three = self.pushed(t + clock, x + (by if self.variant == "middle" else by / 2) * two)
        four = self.pushed(t + 2 * clock, x + by * (two if self.variant == "end" else three))
        if self.variant == "stacked":
            shares = torch.tensor([1.0, 2.0, 2.0, 1.0], dtype=x.dtype)[:, None, None] / 6
            return x + by * (torch.stack([one, two, three, four]) * shares).sum(0)
        if self.variant == "in turn":
            x = x + by / 6 * one
            x = x + by / 3 * two
            x = x + by / 3 * three
            return x + by / 6 * four
        twice = 1.0 if self.variant == "shares" else 2.0
        return x + by / 6 * (one + twice * two + twice * three + four)

    def path(self, x: torch.Tensor) -> torch.Tensor:
        places, by = [], float(self.choose("pace", 0.5, 0.25))
        for i in range(4):
            x = self.moved(i * by, x, by)
            places.append(x)
        return torch.stack(places, 1)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 12, 6)
        times = torch.arange(1, 5, dtype=x.dtype)[:, None] * 0.25
        seen = x[:, None, :3] * times.cos() + x[:, None, 3:] * times.sin() + 0.05 * self.normal(step, 12, 4, 3, stream=1)
        if self.variant == "start":
            x = torch.cat([x[:, 3:], x[:, :3]], 1)
        found = torch.cat([self.path(part) for part in x.split(6)]) if self.variant == "halves" else self.path(x)
        gap = (wide(found[..., :3]) - wide(seen)) / wide(self.spread)
        gap = gap[:, -1:] if self.variant == "last alone" else gap
        speeds = wide(found[..., 3:]).square().mean()
        if self.variant == "joined":
            return torch.cat([gap.square().flatten() / gap.numel(), 0.01 * speeds[None]]).sum()
        return gap.square().mean() + float(self.choose("energy", 0.1, 0.01)) * speeds


PROGRAMS: dict[str, type[Program]] = {"strokes": Strokes, "paths": Paths}
