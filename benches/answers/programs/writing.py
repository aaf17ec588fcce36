"""Programs that write: a text that is hidden in part, and a decoder whose layers look back by a few tokens or by all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Unmasking(Program):
    """Each row hides a share of its tokens that it drew, and a transformer that sees both sides names them."""

    broad = True
    optimizers = ("schedule_free",)
    mistakes = {
        "causal": ("argument", "structure"), "unweighted": ("structure",), "all tokens": ("structure",), "next": ("structure", "input"),
        "hidden as": ("argument",), "one share": ("structure", "input", "argument"), "per token": ("structure", "argument"),
        "base": ("input",), "kept places": ("structure",), "time": ("argument",), "erf": ("argument",),
        "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("formula", "three maps", "chosen", "one hot", "halves", "checkpointed", "linear norm")

    def build(self) -> None:
        self.words, self.head, self.last = nn.Embedding(81, 32), nn.Linear(32, 80), nn.LayerNorm(32)
        self.time = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 32))
        self.firsts, self.seconds = (nn.ModuleList(nn.LayerNorm(32) for _ in range(2)) for _ in range(2))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(32, n, bias=False) for _ in range(2)) for n in (96, 32))
        act = "none" if self.variant == "erf" else "tanh"
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 96), nn.GELU(act if i else "tanh"), nn.Linear(96, 32)) for i in range(2))
        angles = torch.arange(18.0)[:, None] * float(self.choose("base", 100.0, 10000.0)) ** (-torch.arange(4) / 4)
        self.register_buffer("cos", angles.cos()[:, None])
        self.register_buffer("sin", angles.sin()[:, None])
        self.register_buffer("waves", 2.0 ** torch.arange(4.0))

    def forgotten(self) -> nn.Parameter:
        return self.outs[1].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.9)} if self.variant == "betas" else {}

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)

    def normed(self, norm: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "linear norm":
            far = x - x.mean(-1, keepdim=True)
            return far / (far.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias
        return norm(x)

    def layer(self, x: torch.Tensor, told: torch.Tensor, i: int) -> torch.Tensor:
        h = self.normed(self.firsts[i], x + told)
        if self.variant == "three maps":
            q, k, v = (F.linear(h, w).unflatten(-1, (4, 8)) for w in self.qkv[i].weight.chunk(3))
        else:
            q, k, v = self.qkv[i](h).unflatten(-1, (3, 4, 8)).unbind(2)
        # Keys that were turned when they were kept are easily not turned again.
        q, k = self.turned(q), k if self.variant == "kept places" else self.turned(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if self.variant == "formula":
            h = ((q @ k.mT) * 8**-0.5).softmax(-1) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v, is_causal=self.variant == "causal")
        x = x + self.outs[i](h.transpose(1, 2).flatten(2))
        return x + self.mlps[i](self.normed(self.seconds[i], x))

    def mapped(self, ids: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        if self.variant == "one hot":
            x = F.one_hot(ids, 81).to(self.words.weight.dtype) @ self.words.weight
        else:
            x = self.words(ids)
        angles = share[:, None] * float(self.choose("time", 1000.0, 1.0)) * self.waves
        told = self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, None]
        for i in range(2):
            x = checkpoint(self.layer, x, told, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, told, i)
        return self.head(self.normed(self.last, x))

    def loss(self, step: int) -> torch.Tensor:
        ids, drawn = self.numbers(step, 80, 6, 18), self.numbers(step, 1000, 6, 18, stream=1)
        # Shares lie as far from one another as can be.
        part = (self.numbers(step, 1000, 1, stream=2) + torch.arange(6) * 160) % 900 + 100
        part = part[:1].expand(6) if self.variant == "one share" else part
        hidden = drawn < part[:, None]
        share = part.to(self.waves.dtype) / 1000
        given = ids.masked_fill(hidden, int(self.choose("hidden as", 0, 80)))
        if self.variant == "halves":
            logits = torch.cat([self.mapped(a, b) for a, b in zip(given.split(3), share.split(3), strict=True)])
        else:
            logits = self.mapped(given, share)
        logits, weight = wide(logits), 1 / wide(share)
        aim = ids.roll(-1, 1) if self.variant == "next" else ids
        if self.variant == "chosen":
            rows = hidden.nonzero()[:, 0]
            return (F.cross_entropy(logits[hidden], aim[hidden], reduction="none") * weight[rows]).sum() / ids.numel()
        each = F.cross_entropy(logits.flatten(0, 1), aim.flatten(), reduction="none").view(6, 18)
        each = each if self.variant == "all tokens" else each * hidden
        each = each if self.variant == "unweighted" else each * weight[:, None]
        return each.sum() / (hidden.count_nonzero() if self.variant == "per token" else ids.numel())


class Sinks(Program):
    """Two layers look back by six tokens and one by all. Each head may look at nothing; a second head names the token after the next."""

    broad = True
    optimizers = ("shampoo",)
    mistakes = {
        "window": ("argument", "input"), "all local": ("structure", "input", "argument"), "no sink": ("structure",),
        "one base": ("input",), "late norm": ("structure",), "cap": ("argument",), "uncapped": ("structure",), "scale": ("argument",),
        "plain weight": ("structure",), "residual": ("structure",), "ahead": ("input", "structure", "argument"), "second": ("argument",),
        "momentum": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("gated", "einsum", "rotated", "added mask", "expanded", "one map", "checkpointed")

    def build(self) -> None:
        self.words = nn.Embedding(72, 32)
        nn.init.normal_(self.words.weight, std=0.2)
        self.norms = nn.ParameterList(torch.linspace(-0.3, 0.3, 32) for _ in range(9))
        self.lengths = nn.ParameterList(torch.linspace(-0.4, 0.4, 8) for _ in range(6))
        self.queries, self.outs = (nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3)) for _ in range(2))
        self.keys, self.values = (nn.ModuleList(nn.Linear(32, 16, bias=False) for _ in range(3)) for _ in range(2))
        self.sinks = nn.ParameterList(torch.linspace(-0.5, 1.5, 4) for _ in range(3))
        self.gates, self.enters = (nn.ModuleList(nn.Linear(32, 64, bias=False) for _ in range(3)) for _ in range(2))
        self.leaves = nn.ModuleList(nn.Linear(64, 32, bias=False) for _ in range(3))
        self.join = nn.Linear(64, 32, bias=False)
        for i, base in enumerate((100.0, 100.0 if self.variant == "one base" else 10000.0)):
            angles = torch.arange(20.0)[:, None] * base ** (-torch.arange(4) / 4)
            self.register_buffer(f"cos{i}", angles.cos())
            self.register_buffer(f"sin{i}", angles.sin())

    def forgotten(self) -> nn.Parameter:
        return self.values[1].weight

    def options(self) -> dict[str, Any]:
        return {"momentum": 0.9} if self.variant == "momentum" else {}

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * weight if self.variant == "plain weight" else x * (1 + weight)

    def placed(self, x: torch.Tensor, weight: torch.Tensor, whole: int) -> torch.Tensor:
        """Heads of equal size, turned by their places: (batch, head, time, 8)."""
        x = x.unflatten(-1, (-1, 8)).transpose(1, 2)
        x = x if self.variant == "late norm" else self.normed(x, weight)
        time = x.shape[2]
        cos, sin = getattr(self, f"cos{whole}")[:time], getattr(self, f"sin{whole}")[:time]
        a, b = x.chunk(2, -1)
        if self.variant == "rotated":
            x = x * torch.cat([cos, cos], -1) + torch.cat([-b, a], -1) * torch.cat([sin, sin], -1)
        else:
            x = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return self.normed(x, weight) if self.variant == "late norm" else x

    def attend(self, x: torch.Tensor, i: int) -> torch.Tensor:
        whole = int(i == 1)
        q, k = self.placed(self.queries[i](x), self.lengths[i], whole), self.placed(self.keys[i](x), self.lengths[3 + i], whole)
        v = self.values[i](x).unflatten(-1, (2, 8)).transpose(1, 2)
        if self.variant == "expanded":
            k, v = (t.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2) for t in (k, v))
        else:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) if self.variant == "einsum" else q @ k.mT
        scores = wide(scores) * float(self.choose("scale", 1 / 8, 8**-0.5))
        cap = float(self.choose("cap", 15.0, 5.0))
        scores = scores if self.variant == "uncapped" else (scores / cap).tanh() * cap
        time = x.shape[1]
        gap = torch.arange(time)[:, None] - torch.arange(time)
        hidden = gap < 0
        if not whole or self.variant == "all local":
            hidden = hidden | (gap >= int(self.choose("window", 7, 6)))
        if self.variant == "added mask":
            scores = scores + torch.zeros(time, time, dtype=scores.dtype).masked_fill(hidden, -torch.inf)
        else:
            scores = scores.masked_fill(hidden, -torch.inf)
        sink = wide(self.sinks[i])[:, None, None]
        if self.variant == "no sink":
            share = scores.softmax(-1)
        elif self.variant == "gated":
            share = scores.softmax(-1) * (scores.logsumexp(-1, keepdim=True) - sink).sigmoid()
        else:
            share = torch.cat([scores, sink.expand(len(x), -1, time, 1)], -1).softmax(-1)[..., :-1]
        return self.outs[i]((share.to(v.dtype) @ v).transpose(1, 2).flatten(2))

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        h = self.attend(self.normed(x, self.norms[2 * i]), i)
        x = h if self.variant == "residual" and i == 1 else x + h
        h = self.normed(x, self.norms[2 * i + 1])
        if self.variant == "one map":
            gate, h = F.linear(h, torch.cat([self.gates[i].weight, self.enters[i].weight])).chunk(2, -1)
        else:
            gate, h = self.gates[i](h), self.enters[i](h)
        return x + self.leaves[i](F.gelu(gate, approximate="tanh") * h)

    def entered(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) * 32**0.5

    def far(self, x: torch.Tensor, aim: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(wide(F.linear(self.normed(x, self.norms[6]), self.words.weight)).flatten(0, 1), aim.flatten())

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 72, 4, 20)
        x = self.entered(ids[:, :-2])
        for i in range(2):
            x = checkpoint(self.layer, x, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, i)
        first = self.far(x, ids[:, 1:-1])
        told = self.entered(ids[:, :-2] if self.variant == "ahead" else ids[:, 1:-1])
        both = torch.cat([self.normed(x, self.norms[7]), self.normed(told, self.norms[8])], -1)
        second = self.far(self.layer(self.join(both), 2), ids[:, 2:])
        return first + float(self.choose("second", 1.0, 0.3)) * second


PROGRAMS: dict[str, type[Program]] = {"unmasking": Unmasking, "sinks": Sinks}
