"""Blocks that mix the places of a sequence."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from programs.drawn.block import Block
from torch import nn


class Attention(Block):
    """With grouped keys, rotary places, norms of queries and keys, and a mask, as they are drawn."""

    ways = ("formula", "einsum", "apart", "scaled first", "rotary by halves")
    mistakes = {
        "scale": ("argument", "structure"), "mask": ("argument", "structure", "input"), "no rotary": ("structure",),
        "values": ("structure", "input"), "heads": ("argument", "structure", "input"),
    }  # fmt: skip

    def build(self, draw: random.Random) -> None:
        self.heads = draw.choice((2, 4))
        self.size = self.width // self.heads
        self.shared = draw.choice((1, 1, 2))
        self.rotary, self.normed = draw.random() < 0.5, draw.random() < 0.3
        self.mask = draw.choice(("causal", "none", "window", "distance"))
        self.lacks(*[] if self.rotary else ["no rotary", "rotary by halves"], *["mask"] if self.mask == "none" else [])
        bias = draw.random() < 0.5
        self.inner = (self.heads + 2 * (self.heads // self.shared)) * self.size
        self.qkv, self.out = nn.Linear(self.width, self.inner, bias), nn.Linear(self.width, self.width, bias)

    def split(self, x: torch.Tensor) -> list[torch.Tensor]:
        kept = self.heads // self.shared * self.size
        sizes = [self.width, kept, kept]
        if self.way == "apart":
            biases = self.qkv.bias.split(sizes) if self.qkv.bias is not None else [None] * 3
            made = [F.linear(x, w, b) for w, b in zip(self.qkv.weight.split(sizes), biases, strict=True)]
        else:
            made = list(self.qkv(x).split(sizes, -1))
        if self.way == "heads":
            return [t.unflatten(-1, (self.size, -1)).permute(0, 3, 1, 2) for t in made]
        return [t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in made]

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        half = self.size // 2
        speed = 100.0 ** (-torch.arange(half) / half)
        angle = torch.arange(x.shape[2])[:, None] * speed
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        if self.way == "rotary by halves":
            both = torch.cat([-b, a], -1)
            return x * torch.cat([cos, cos], -1) + both * torch.cat([sin, sin], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def hidden(self, length: int, dtype: torch.dtype) -> torch.Tensor | None:
        """What is added to scores."""
        i = torch.arange(length)
        gap = i[:, None] - i
        if self.mask == "none" or self.way == "mask":
            return None
        if self.mask == "distance":
            return -(gap.abs() * 0.25).to(dtype)
        apart = gap < 0 if self.mask == "causal" else (gap < 0) | (gap >= 5)
        return torch.zeros(length, length, dtype=dtype).masked_fill(apart, -torch.inf)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(x)
        if self.normed:
            q, k = F.normalize(q, dim=-1) * 4, F.normalize(k, dim=-1) * 4
        if self.rotary and self.way != "no rotary":
            q, k = self.turned(q), self.turned(k)
        if self.shared > 1:
            k, v = k.repeat_interleave(self.shared, 1), v.repeat_interleave(self.shared, 1)
        if self.way == "values":
            v = k
        scale = self.size ** (-1.0 if self.way == "scale" else -0.5)
        mask = self.hidden(x.shape[1], q.dtype)
        if self.way in ("formula", "einsum", "scaled first"):
            if self.way == "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
            elif self.way == "scaled first":
                scores = (q * scale) @ k.mT
            else:
                scores = q @ k.mT * scale
            share = (scores if mask is None else scores + mask).softmax(-1)
            mixed = torch.einsum("bhqk,bhkd->bhqd", share.to(v.dtype), v) if self.way == "einsum" else share.to(v.dtype) @ v
        elif self.mask == "causal" and self.way != "mask":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
        return self.out(mixed.transpose(1, 2).flatten(2))


class ShortConvolution(Block):
    """Each channel sees a few places before it."""

    ways = ("taps", "dense", "windows")
    mistakes = {"centred": ("argument", "structure", "input"), "turned": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.reach = draw.choice((3, 4))
        self.kernel = nn.Parameter(torch.randn(self.width, 1, self.reach) / self.reach**0.5)
        self.after = nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.reach - 1 if self.way != "centred" else 1
        kernel = self.kernel.flip(-1) if self.way == "turned" else self.kernel
        padded = F.pad(x.mT, (before, self.reach - 1 - before))
        if self.way == "taps":
            length = x.shape[1]
            mixed = sum(padded[..., i : i + length] * kernel[:, :, i] for i in range(self.reach))
        elif self.way == "windows":
            mixed = (padded.unfold(2, self.reach, 1) * kernel[None]).sum(-1)
        elif self.way == "dense":
            mixed = F.conv1d(padded, torch.diag_embed(kernel[:, 0].mT).permute(1, 2, 0))
        else:
            mixed = F.conv1d(padded, kernel, groups=self.width)
        return self.after(mixed.mT)


class GatedScan(Block):
    """A linear recurrence with a gate that decides how much is forgotten."""

    ways = ("matrix", "lerp", "places last")
    mistakes = {"no decay": ("structure",), "late": ("structure", "input"), "floor": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.gate, self.value = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)
        self.floor = draw.choice((0.2, 0.5))
        self.squash = draw.choice(("sigmoid", "exp"))

    def kept(self, x: torch.Tensor) -> torch.Tensor:
        """The share of the state that is kept, from `floor` to 1."""
        gate = self.gate(x)
        share = gate.sigmoid() if self.squash == "sigmoid" else torch.exp(-F.softplus(gate))
        floor = 0.35 if self.way == "floor" else self.floor
        return floor + (1 - floor) * share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keep, value = self.kept(x), self.value(x)
        if self.way == "matrix":
            total = keep.log().cumsum(1)
            gap = total[:, :, None] - total[:, None]
            before = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[..., None]
            weight = gap.masked_fill(~before, -torch.inf).exp()
            return (weight * ((1 - keep) * value)[:, None]).sum(2)
        if self.way == "places last":
            keep, value = keep.permute(1, 0, 2), value.permute(1, 0, 2)
            state, states = torch.zeros_like(value[0]), []
            for k, v in zip(keep, value, strict=True):
                state = k * state + (1 - k) * v
                states.append(state)
            return torch.stack(states).permute(1, 0, 2)
        state, states = torch.zeros_like(value[:, 0]), []
        for i in range(x.shape[1]):
            if self.way == "late":
                states.append(state)
            if self.way == "lerp":
                state = torch.lerp(value[:, i], state, keep[:, i])
            elif self.way == "no decay":
                state = state + (1 - keep[:, i]) * value[:, i]
            else:
                state = keep[:, i] * state + (1 - keep[:, i]) * value[:, i]
            if self.way != "late":
                states.append(state)
        return torch.stack(states, 1)


class Recurrence(Block):
    """A recurrent layer of torch."""

    ways = ("cells",)
    mistakes = {"backwards": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.layer = nn.GRU(self.width, self.width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "backwards":
            return self.layer(x.flip(1))[0].flip(1)
        if self.way != "cells":
            return self.layer(x)[0]
        made, state, states = self.layer, torch.zeros_like(x[:, 0]), []
        for i in range(x.shape[1]):
            r, z, n = F.linear(x[:, i], made.weight_ih_l0, made.bias_ih_l0).chunk(3, -1)
            rh, zh, nh = F.linear(state, made.weight_hh_l0, made.bias_hh_l0).chunk(3, -1)
            fresh, update = torch.tanh(n + torch.sigmoid(r + rh) * nh), torch.sigmoid(z + zh)
            state = (1 - update) * fresh + update * state
            states.append(state)
        return torch.stack(states, 1)


class Spectrum(Block):
    """Filters each channel along the places in the frequency domain."""

    ways = ("full", "real parts")
    mistakes = {"norm": ("argument",), "conjugate": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.real, self.imaginary = (nn.Parameter(torch.randn(4, self.width) * 0.5) for _ in range(2))
        self.after = nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        length, norm = x.shape[1], "forward" if self.way == "norm" else "ortho"
        taps = torch.complex(self.real.to(wide.dtype), self.imaginary.to(wide.dtype))
        taps = F.pad(taps, (0, 0, 0, length // 2 - 3))
        taps = taps.conj() if self.way == "conjugate" else taps
        if self.way == "full":
            seen = torch.fft.fft(wide, dim=1, norm="ortho")[:, : length // 2 + 1]
        else:
            seen = torch.fft.rfft(wide, dim=1, norm=norm)
        if self.way == "real parts":
            a, b, c, d = seen.real, seen.imag, taps.real, taps.imag
            seen = torch.complex(a * c - b * d, a * d + b * c)
        else:
            seen = seen * taps
        return self.after(torch.fft.irfft(seen, length, dim=1, norm="ortho").to(x.dtype))


class PlaceShift(Block):
    """Mixes each place with the one before it, by a share for each channel."""

    ways = ("rolled", "lerp", "convolved")
    mistakes = {"next": ("structure", "argument", "input")}

    def build(self, draw: random.Random) -> None:
        self.share = nn.Parameter(torch.rand(self.width))
        self.key, self.gate = nn.Linear(self.width, self.width, bias=False), nn.Linear(self.width, self.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "convolved":
            taps = torch.stack([self.share, 1 - self.share], -1)[:, None]
            mixed = F.conv1d(F.pad(x.mT, (1, 0)), taps, groups=self.width).mT
        else:
            if self.way == "rolled":
                first = torch.arange(x.shape[1])[:, None] == 0
                before = x.roll(1, 1).masked_fill(first, 0.0)
            elif self.way == "next":
                before = F.pad(x[:, 1:], (0, 0, 0, 1))
            else:
                before = F.pad(x[:, :-1], (0, 0, 1, 0))
            mixed = torch.lerp(x, before, self.share) if self.way == "lerp" else x + (before - x) * self.share
        return self.key(mixed).relu() * self.gate(x).sigmoid()


class RunningMean(Block):
    """The mean of all places so far."""

    ways = ("matrix", "weighted")
    mistakes = {"whole": ("structure", "argument", "input"), "off by one": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.into, self.after = nn.Linear(self.width, self.width), nn.Linear(self.width, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, length = self.into(x), x.shape[1]
        if self.way == "matrix":
            weights = torch.ones(length, length, dtype=h.dtype).tril() / torch.arange(1, length + 1)[:, None]
            return self.after(weights @ h)
        if self.way == "weighted":
            counts = torch.arange(1, length + 1, dtype=h.dtype)[:, None]
            return self.after(h.cumsum(1) * counts.reciprocal())
        if self.way == "whole":
            return self.after(h.cumsum(1) / length)
        start = 2 if self.way == "off by one" else 1
        return self.after(h.cumsum(1) / torch.arange(start, start + length)[:, None])


MIXERS: tuple[type[Block], ...] = (
    Attention, Attention, ShortConvolution, GatedScan, Recurrence, Spectrum, PlaceShift, RunningMean,
)  # fmt: skip
