"""Programs of fields and clouds: an operator in frequencies, and points that look at the points nearest to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Frequencies(nn.Module):
    """Multiplies the lowest frequencies of a field (batch, channels, 16, 16), of both signs along its rows."""

    def __init__(self, program: Program, modes: int) -> None:
        super().__init__()
        self.variant, self.modes = program.variant, modes
        size = float(program.choose("size", 1.0, 1 / 12))
        self.low, self.high = (nn.Parameter(torch.randn(12, 12, 4, 4, 2) * size) for _ in range(2))

    def mixed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        m = x.shape[-1]
        weight = torch.view_as_complex(wide(weight).contiguous())[..., :m, :m]
        if self.variant == "conjugate":
            weight = weight.conj()
        if self.variant == "products":
            return (x.permute(2, 3, 0, 1) @ weight.permute(2, 3, 0, 1)).permute(2, 3, 0, 1)
        if self.variant == "parts":
            a, b, c, d = x.real, x.imag, weight.real, weight.imag
            real = torch.einsum("bixy,ioxy->boxy", a, c) - torch.einsum("bixy,ioxy->boxy", b, d)
            return torch.complex(real, torch.einsum("bixy,ioxy->boxy", a, d) + torch.einsum("bixy,ioxy->boxy", b, c))
        return torch.einsum("bixy,ioxy->boxy", x, weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, m = wide(x), self.modes
        if self.variant == "one by one":
            seen = torch.fft.fft(torch.fft.rfft(x, dim=3), dim=2)
        else:
            seen = torch.fft.rfft2(x)
        if self.variant == "joined":
            gap = seen.new_zeros(*seen.shape[:2], 16 - 2 * m, m)
            out = torch.cat([self.mixed(seen[:, :, :m, :m], self.low), gap, self.mixed(seen[:, :, -m:, :m], self.high)], 2)
            out = F.pad(out, (0, 9 - m))
        else:
            out = torch.zeros_like(seen)
            out[:, :, :m, :m] = self.mixed(seen[:, :, :m, :m], self.low)
            if self.variant != "one side":
                out[:, :, -m:, :m] = self.mixed(seen[:, :, -m:, :m], self.high)
        if self.variant == "norm":
            return torch.fft.irfft2(out, s=(16, 16), norm="ortho")
        if self.variant == "one by one":
            return torch.fft.irfft(torch.fft.ifft(out, dim=2), n=16, dim=3)
        return torch.fft.irfft2(out, s=(16, 16))


class Operator(Program):
    """Learns what a field becomes later, by its frequencies, and weighs the gap by the size of the field."""

    broad = True
    optimizers = ("adan",)
    mistakes = {
        "modes": ("argument",), "norm": ("argument",), "conjugate": ("structure",), "one side": ("structure",),
        "grid": ("structure", "argument", "input"),
        "size": ("input",), "last": ("structure",), "root": ("structure",), "spread": ("input",), "dims": ("argument",),
        "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("products", "parts", "one by one", "joined", "linear", "norms", "three maps")

    def build(self) -> None:
        modes = int(self.choose("modes", 3, 4))
        self.enter, self.leave = nn.Linear(3, 12), nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))
        self.waves = nn.ModuleList(Frequencies(self, modes if i else 4) for i in range(3))
        self.sides = nn.ModuleList(nn.Conv2d(12, 12, 1) for _ in range(3))
        self.register_buffer("mean", torch.tensor(0.1))
        self.register_buffer("spread", torch.tensor(1.0 if self.variant == "spread" else 1.4))

    def forgotten(self) -> nn.Parameter:
        return self.sides[1].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.92, 0.99)} if self.variant == "betas" else {}

    def grid(self, x: torch.Tensor) -> torch.Tensor:
        line = torch.linspace(0, 1, 16) if self.variant == "grid" else torch.arange(16) / 16
        line = line.to(x.dtype)
        return torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).expand(x.shape[0], -1, -1, -1)

    def side(self, x: torch.Tensor, i: int) -> torch.Tensor:
        if self.variant == "linear":
            conv = self.sides[i]
            return torch.einsum("bixy,oi->boxy", x, conv.weight.flatten(1)) + conv.bias[:, None, None]
        return self.sides[i](x)

    def loss(self, step: int) -> torch.Tensor:
        fine = self.normal(step, 4, 16, 16)
        field = fine + fine.roll(1, 1) + fine.roll(1, 2) + fine.roll((1, 1), (1, 2))
        aim = (field.roll(2, 2) + 0.5 * field.roll(3, 1)).unsqueeze(-1) * 0.6
        x = (field.unsqueeze(-1) - self.mean) / (self.spread + 1e-5)
        if self.variant == "three maps":
            x = F.linear(x, self.enter.weight[:, :1]) + F.linear(self.grid(x), self.enter.weight[:, 1:], self.enter.bias)
        else:
            x = self.enter(torch.cat([x, self.grid(x)], -1))
        x = x.permute(0, 3, 1, 2)
        for i in range(3):
            x = self.waves[i](x).to(x.dtype) + self.side(x, i)
            x = F.gelu(x) if i < 2 or self.variant == "last" else x
        out = wide(self.leave(x.permute(0, 2, 3, 1)))
        gap, whole = (out - wide(aim)).flatten(1), wide(aim).flatten(1)
        if self.variant == "root":
            return (gap.square().sum(1) / whole.square().sum(1)).mean()
        if self.variant == "dims":
            return (gap.norm(dim=0) / whole.norm(dim=0)).mean()
        if self.variant == "norms":
            return (gap.square().sum(1).sqrt() / whole.square().sum(1).sqrt()).mean()
        return (gap.norm(dim=1) / whole.norm(dim=1)).mean()


class PointLayer(nn.Module):
    """Each point weighs its neighbours, channel by channel, by how they differ and where they lie."""

    def __init__(self, program: Program, width: int) -> None:
        super().__init__()
        self.variant = program.variant
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.place = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.weigh = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def taken(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Rows of x (batch, points, width) by near (batch, points, neighbours)."""
        batch, points, width = x.shape
        if self.variant in ("flat", "offset"):
            start = torch.arange(batch)[:, None, None] * (0 if self.variant == "offset" else points)
            return x.flatten(0, 1).index_select(0, (near + start).flatten()).view(*near.shape, width)
        if self.variant == "gathered":
            index = near.flatten(1)[..., None].expand(-1, -1, width)
            return x.gather(1, index).view(*near.shape, width)
        return x[torch.arange(batch)[:, None, None], near]

    def forward(self, x: torch.Tensor, where: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        if self.variant == "three maps":
            q, k, v = (F.linear(h, w, b) for w, b in zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True))
        else:
            q, k, v = self.qkv(h).chunk(3, -1)
        way = where[:, :, None] - self.taken(where, near)
        way = self.place(-way if self.variant == "turned" else way)
        k, v = self.taken(k, near), self.taken(v, near)
        scores = self.weigh(q[:, :, None] - k + way)
        scores = scores * (1.0 if self.variant == "unscaled" else x.shape[-1] ** -0.5)
        if self.variant == "by hand":
            share = (scores - scores.detach().amax(2, keepdim=True)).exp()
            share = share / share.sum(2, keepdim=True)
        else:
            share = scores.softmax(-1 if self.variant == "channels" else 2)
        if self.variant == "einsum":
            both = torch.einsum("bpnc,bpnc->bpc", share, v.to(share.dtype) + way.to(share.dtype))
        else:
            both = (share * (v if self.variant == "values" else v + way)).sum(2)
        return x + self.out(both)


class Points(Program):
    """Clouds of points become classes: attention among neighbours, fewer points, attention again, the largest of all."""

    broad = True
    optimizers = ("lamb",)
    mistakes = {
        "neighbours": ("argument",), "farthest": ("argument",), "turned": ("structure",), "unscaled": ("argument",),
        "channels": ("argument",), "offset": ("structure",), "values": ("structure",), "pooled": ("structure",), "fewer": ("argument",),
        "centred": ("structure",), "trust": ("optimizer", "structure", "argument"), "correction": ("optimizer", "structure", "argument"),
        "unloaded": ("input",), "mode": ("argument", "structure"),
    }  # fmt: skip
    alike = ("expanded", "flat", "gathered", "three maps", "by hand", "einsum", "conv", "sorted")

    def build(self) -> None:
        self.enter = nn.Sequential(nn.Linear(3, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.first, self.wider, self.second = PointLayer(self, 24), nn.Linear(24, 40), PointLayer(self, 40)
        self.norm, self.head = nn.BatchNorm1d(40), nn.Linear(40, 8)

    def train(self, mode: bool = True) -> Points:
        super().train(mode)
        self.norm.train(self.variant != "mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.second.weigh[2].weight

    def options(self) -> dict[str, Any]:
        return {"trusted": self.variant != "trust", "corrected": self.variant != "correction"}

    def near(self, where: torch.Tensor, count: int) -> torch.Tensor:
        where = wide(where)
        if self.variant == "expanded":
            size = where.square().sum(-1)
            far = size[:, :, None] + size[:, None] - 2 * where @ where.mT
        else:
            far = (where[:, :, None] - where[:, None]).square().sum(-1)
        if self.variant == "sorted":
            return far.argsort(-1)[..., :count]
        return far.topk(count, -1, largest=self.variant == "farthest").indices

    def loss(self, step: int) -> torch.Tensor:
        where = self.normal(step, 6, 32, 3)
        if self.variant != "centred":
            where = where - where.mean(1, keepdim=True)
            where = where / where.norm(dim=-1).amax(1)[:, None, None]
        h = where.flatten(0, 1)
        if self.variant == "conv":
            h = F.conv1d(where.mT, self.enter[0].weight[..., None], self.enter[0].bias).mT.flatten(0, 1)
            x = self.enter[2](self.enter[1](h)).view(6, 32, 24)
        else:
            x = self.enter(h).view(6, 32, 24)
        x = self.first(x, where, self.near(where, int(self.choose("neighbours", 6, 8))))
        start = 1 if self.variant == "fewer" else 0
        x, where = self.wider(x[:, start::2]), where[:, start::2]
        x = self.second(x, where, self.near(where, 5))
        x = x.mean(1) if self.variant == "pooled" else x.amax(1)
        logits = wide(self.head(self.norm(x)))
        return F.cross_entropy(logits, self.numbers(step, 8, 6), label_smoothing=0.2)


PROGRAMS: dict[str, type[Program]] = {"operator": Operator, "points": Points}
