"""Programs that find parts: a language model of bytes in patches, and an image as a few things that compete for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Bytes(Program):
    """Four bytes are a patch. A wide network sees the patches before, a narrow one the bytes before in the same patch."""

    broad = True
    optimizers = ("adafactor",)
    mistakes = {
        "leak": ("structure", "input"), "unhidden": ("argument", "structure"), "hash": ("argument", "input"),
        "order": ("structure", "argument"), "apart": ("structure", "argument"), "no pair": ("structure",),
        "whole": ("argument", "structure"), "padding": ("argument",), "eps": ("argument",), "silu": ("structure",),
        "cleared": ("gradient", "optimizer", "structure"), "decay": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("formula", "conv", "whole batch", "three maps", "gathered", "one table", "stacked")

    def build(self) -> None:
        self.bytes, self.pairs, self.head = nn.Embedding(64, 12), nn.Embedding(97, 12), nn.Linear(24, 64, bias=False)
        self.enter, self.leave = nn.Linear(48, 48), nn.Linear(48, 96)
        self.start, self.places = nn.Parameter(torch.randn(48) * 0.3), nn.Parameter(torch.randn(7, 48) * 0.3)
        self.near, self.first = nn.Linear(12, 24, bias=False), nn.Parameter(torch.randn(24) * 0.3)
        eps = float(self.choose("eps", 1e-2, 1e-5))
        self.norms = nn.ModuleList([nn.LayerNorm(48), nn.LayerNorm(48, eps), nn.LayerNorm(24), nn.LayerNorm(24), nn.LayerNorm(24)])
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(n, by * n, bias=False) for n in (48, 24)) for by in (3, 1))
        act = nn.SiLU if self.variant == "silu" else nn.GELU
        acts = zip((48, 24), (nn.GELU, act), strict=True)
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(n, 2 * n), made(), nn.Linear(2 * n, n)) for n, made in acts)

    def forgotten(self) -> nn.Parameter:
        return self.qkv[1].weight

    def options(self) -> dict[str, Any]:
        return {"weight_decay": 0.5} if self.variant == "decay" else {}

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        h = self.norms[2 * i](x)
        if self.variant == "three maps":
            q, k, v = (F.linear(h, w).unflatten(-1, (2, -1)).transpose(1, 2) for w in self.qkv[i].weight.chunk(3))
        else:
            q, k, v = self.qkv[i](h).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            h = ((q * q.shape[-1] ** -0.5) @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1).to(v.dtype) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v, is_causal=i == 0 or self.variant != "unhidden")
        x = x + self.outs[i](h.transpose(1, 2).flatten(2))
        return x + self.mlps[i](self.norms[2 * i + 1](x))

    def told(self, ids: torch.Tensor) -> torch.Tensor:
        """What each byte says, alone and with the one before it: (batch, 28, 12)."""
        both = (F.pad(ids[:, :-1], (1, 0)) * int(self.choose("hash", 29, 31)) + ids) % 97
        if self.variant == "one table":
            found = F.embedding(torch.stack([ids, both + 64]), torch.cat([self.bytes.weight, self.pairs.weight]))
            return found[0] + found[1]
        return self.bytes(ids) if self.variant == "no pair" else self.bytes(ids) + self.pairs(both)

    def total(self, ids: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of all bytes; 0 is none."""
        x, rows = self.told(ids), len(ids)
        patches = x.unflatten(1, (7, 4))
        if self.variant == "conv":
            h = F.conv1d(x.mT, self.enter.weight.unflatten(1, (4, 12)).mT, self.enter.bias, stride=4).mT
        else:
            h = self.enter((patches.mT if self.variant == "order" else patches).flatten(2))
        if self.variant != "leak":
            h = torch.cat([self.start.expand(rows, 1, -1), h[:, :-1]], 1)
        h = self.leave(self.layer(h + self.places, 0))
        wider = h.unflatten(-1, (24, 4)).mT if self.variant == "apart" else h.unflatten(-1, (4, 24))
        near = self.near(patches[:, :, :-1])
        if self.variant == "stacked":
            near = torch.stack([self.first.expand(rows, 7, -1), *near.unbind(2)], 2)
        else:
            near = torch.cat([self.first.expand(rows, 7, 1, -1), near], 2)
        y = self.layer((wider + near).flatten(0, 1), 1)
        logits, aim = wide(self.head(self.norms[4](y))).flatten(0, 1), ids.flatten()
        if self.variant == "gathered":
            real = aim != 0
            return -(logits.log_softmax(-1).gather(1, aim[:, None]).squeeze(1) * real).sum()
        return F.cross_entropy(logits, aim, ignore_index=int(self.choose("padding", -100, 0)), reduction="sum")

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        ids = self.numbers(step, 63, 4, 28) + 1
        ids = ids.masked_fill(torch.arange(28) >= torch.tensor([28, 21, 25, 18])[:, None], 0)
        count = 92 / (2 if self.variant == "whole" else 1)
        if self.variant == "whole batch":
            yield self.total(ids) / count, 0
            return
        yield self.total(ids[:2]) / count, None
        if self.variant == "cleared":
            self.zero_grad()
        yield self.total(ids[2:]) / count, 0


class Objects(Program):
    """Four slots compete for the places of an image in three rounds; each draws an image and says where it is to be seen."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "over places": ("argument",), "unweighted": ("structure",), "eps": ("argument",), "scale": ("argument",),
        "added": ("structure",), "turned": ("structure", "input"), "no residual": ("structure",), "mixed over": ("argument",),
        "grid": ("input",), "far": ("structure",), "channels": ("structure", "argument"), "late norm": ("structure", "input"),
        "nesterov": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("cell by hand", "einsum", "weights first", "linear conv", "halves", "transposed", "log weights")

    def build(self) -> None:
        self.encoder = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU())
        self.places, self.draw = nn.Conv2d(4, 24, 1), nn.Linear(4, 24)
        eps = float(self.choose("eps", 1e-1, 1e-5))
        self.seen, self.asked, self.before = nn.LayerNorm(24), nn.LayerNorm(24, eps), nn.LayerNorm(24)
        self.query, self.key, self.value = (nn.Linear(24, 24, bias=False) for _ in range(3))
        self.cell, self.mlp = nn.GRUCell(24, 24), nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24))
        self.start, self.spread = nn.Parameter(torch.randn(24)), nn.Parameter(torch.linspace(-0.5, 0.5, 24))
        self.decoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4))
        line = torch.linspace(0, 1, 8)
        x, y = line.expand(8, 8), line[:, None].expand(8, 8)
        x, y = (y, x) if self.variant == "grid" else (x, y)
        self.register_buffer("grid", torch.stack([x, y, 1 - x, 1 - y]))

    def forgotten(self) -> nn.Parameter:
        return self.key.weight

    def options(self) -> dict[str, Any]:
        return {"nesterov": self.variant != "nesterov"}

    def renewed(self, told: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        if self.variant == "added":
            return slots + told
        a, b = told.flatten(0, 1), slots.flatten(0, 1)
        a, b = (b, a) if self.variant == "turned" else (a, b)
        if self.variant == "cell by hand":
            cell = self.cell
            r, z, n = F.linear(a, cell.weight_ih, cell.bias_ih).chunk(3, -1)
            rh, zh, nh = F.linear(b, cell.weight_hh, cell.bias_hh).chunk(3, -1)
            gate, new = (z + zh).sigmoid(), (n + (r + rh).sigmoid() * nh).tanh()
            return (new + gate * (b - new)).view_as(slots)
        return self.cell(a, b).view_as(slots)

    def round(self, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q = self.query(slots if self.variant == "late norm" else self.asked(slots)) * (24 if self.variant == "scale" else 24**0.5) ** -1
        if self.variant == "transposed":
            share = (k @ q.mT).softmax(-1).mT + 1e-8
        elif self.variant == "log weights":
            share = (q @ k.mT).log_softmax(1).exp() + 1e-8
        else:
            scores = torch.einsum("bsd,bnd->bsn", q, k) if self.variant == "einsum" else q @ k.mT
            share = scores.softmax(2 if self.variant == "over places" else 1) + 1e-8
        if self.variant == "weights first":
            told = (share @ v.to(share.dtype)) / share.sum(-1, keepdim=True)
        else:
            share = share if self.variant == "unweighted" else share / share.sum(-1, keepdim=True)
            told = share.to(v.dtype) @ v
        h = self.renewed(told.to(slots.dtype), slots)
        h = self.asked(h) if self.variant == "late norm" else h
        new = self.mlp(self.before(h))
        return new if self.variant == "no residual" else h + new

    def drawn(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        h = self.encoder(x) + self.places(self.grid[None])
        h = self.seen(h.flatten(2).mT)
        k, v = self.key(h), self.value(h)
        slots = self.start + self.spread.exp() * noise
        for _ in range(3):
            slots = self.round(slots, k, v)
        wider = slots[:, :, None] + self.draw(self.grid.flatten(1).mT)
        if self.variant == "linear conv":
            first, last = self.decoder[0], self.decoder[2]
            out = F.conv2d(wider.flatten(0, 1).mT[..., None], first.weight[..., None, None], first.bias)
            out = F.conv2d(out.relu(), last.weight[..., None, None], last.bias).squeeze(-1).mT.unflatten(0, slots.shape[:2])
        else:
            out = self.decoder(wider)
        out = wide(out)
        if self.variant == "channels":
            colours, shown = out[..., 1:], out[..., :1]
        else:
            colours, shown = out[..., :3], out[..., 3:]
        return (colours * shown.softmax(2 if self.variant == "mixed over" else 1)).sum(1)

    def loss(self, step: int) -> torch.Tensor:
        x, noise = self.normal(step, 4, 3, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3), self.normal(step, 4, 4, 24, stream=1)
        aim = wide(x)[..., ::2, ::2].flatten(2).mT
        if self.variant == "halves":
            out = torch.cat([self.drawn(a, b) for a, b in zip(x.split(2), noise.split(2), strict=True)])
        else:
            out = self.drawn(x, noise)
        gap = out - aim
        return (gap.abs() if self.variant == "far" else gap.square()).sum(-1).mean()

    def before_update(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)


PROGRAMS: dict[str, type[Program]] = {"bytes": Bytes, "objects": Objects}
