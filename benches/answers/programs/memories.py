"""Language models whose memory is not plain attention: retention, a selective scan, keys and values of low rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Retention(Program):
    """Memory fades by a rate of each head, and each token is mixed with the one before."""

    broad = True
    optimizers = ("radam",)
    mistakes = {
        "fading": ("input",), "causal": ("structure",), "eps": ("argument",), "wrapped": ("structure",),
        "scaling": ("structure",), "gate": ("structure",), "base": ("input",), "smoothing": ("argument", "structure"),
        "late norm": ("structure",), "unloaded": ("input",), "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("recurrent", "chunks", "einsum", "three maps", "gathered", "foreach", "checkpointed")

    def build(self) -> None:
        self.words, self.head = nn.Embedding(100, 48), nn.Linear(48, 100, bias=False)
        self.shares = nn.ParameterList(torch.linspace(0.3, 0.9, 48) for _ in range(2))
        self.norms, self.lates = (nn.ModuleList(nn.LayerNorm(48) for _ in range(2)) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(48, 144, bias=False) for _ in range(2))
        self.gates, self.outs = (nn.ModuleList(nn.Linear(48, 48, bias=False) for _ in range(2)) for _ in range(2))
        eps = self.choose("eps", 1e-3, 1e-6)
        self.heads = nn.ModuleList(nn.GroupNorm(4, 48, eps if i else 1e-6) for i in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(2))
        rates = 1 - 2.0 ** (-2 - torch.arange(4.0))
        self.register_buffer("rates", rates.flip(0) if self.variant == "fading" else rates)
        angles = torch.arange(16.0)[:, None] / float(self.choose("base", 100.0, 10000.0)) ** (torch.arange(6) / 6)
        self.register_buffer("cos", angles.cos()[:, None])
        self.register_buffer("sin", angles.sin()[:, None])

    def forgotten(self) -> nn.Parameter:
        return self.gates[1].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.8, 0.999)} if self.variant == "betas" else {"foreach": self.variant == "foreach"}

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1).flatten(-2)

    def kept(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Each reads batch, time, head, width."""
        if self.variant in ("recurrent", "chunks"):
            return self.recurrent(q, k, v) if self.variant == "recurrent" else self.chunked(q, k, v)
        fade = self.faded(q.shape[1])
        if self.variant == "einsum":
            return torch.einsum("bhts,bshe->bthe", torch.einsum("bthd,bshd->bhts", q, k) * fade, v)
        scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) * fade
        return (scores @ v.transpose(1, 2)).transpose(1, 2)

    def faded(self, length: int) -> torch.Tensor:
        ages = (torch.arange(length)[:, None] - torch.arange(length)).clamp_min(0)
        fade = self.rates[:, None, None] ** ages
        return fade if self.variant == "causal" else fade.tril()

    def recurrent(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        state, out = q.new_zeros(q.shape[0], 4, 12, 12), []
        for i in range(q.shape[1]):
            state = state * self.rates[:, None, None] + k[:, i, :, :, None] * v[:, i, :, None, :]
            out.append((q[:, i, :, None] @ state).squeeze(-2))
        return torch.stack(out, 1)

    def chunked(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Four tokens at a time look at one another, and at the state that the chunks before left."""
        fade, rate, out = self.faded(4), self.rates[:, None, None], []
        ages = torch.arange(4)[:, None]
        state = q.new_zeros(q.shape[0], 4, 12, 12)
        for a, b, c in zip(*(t.transpose(1, 2).split(4, 2) for t in (q, k, v)), strict=True):
            out.append((a @ b.mT * fade) @ c + (a * rate ** (ages + 1)) @ state)
            state = state * rate**4 + (b * rate ** (3 - ages)).mT @ c
        return torch.cat(out, 2).transpose(1, 2)

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        h = x if self.variant == "late norm" else self.norms[i](x)
        before = h.roll(1, 1) if self.variant == "wrapped" else F.pad(h, (0, 0, 1, -1))
        h = before + (h - before) * self.shares[i]
        if self.variant == "three maps":
            q, k, v = (F.linear(h, w).unflatten(-1, (4, 12)) for w in self.qkv[i].weight.chunk(3))
        else:
            q, k, v = self.qkv[i](h).unflatten(-1, (3, 4, 12)).unbind(2)
        q, k = self.turned(q), self.turned(k)
        mixed = self.kept(q, k if self.variant == "scaling" else k * 12**-0.5, v)
        mixed = self.heads[i](mixed.flatten(0, 1).flatten(1)).view_as(h)
        gate = self.gates[i](h)
        x = x + self.outs[i](mixed * (gate.sigmoid() if self.variant == "gate" else F.silu(gate)))
        x = self.norms[i](x) if self.variant == "late norm" else x
        return x + self.mlps[i](self.lates[i](x))

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 100, 4, 17)
        x = self.words(ids[:, :-1])
        for i in range(2):
            x = checkpoint(self.layer, x, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, i)
        logits, aim = wide(self.head(x)).flatten(0, 1), ids[:, 1:].flatten()
        if self.variant == "gathered":
            return -logits.log_softmax(-1).gather(1, aim[:, None]).mean()
        return F.cross_entropy(logits, aim, label_smoothing=self.choose("smoothing", 0.1, 0.0))


class Scanned(nn.Module):
    """A block of a state space whose pace, entrance and exit the input chooses."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.variant = program.variant
        self.norm = RootNorm(32, float(program.choose("eps", 1e-2, 1e-5)))
        self.enter, self.leave = nn.Linear(32, 96, bias=False), nn.Linear(48, 32, bias=False)
        self.conv = nn.Conv1d(48, 48, 4, padding=3, groups=48)
        self.project, self.pace = nn.Linear(48, 12, bias=False), nn.Linear(4, 48)
        rates = torch.ones(4) if self.variant == "rates" else torch.arange(1.0, 5.0)
        self.rates, self.skip = nn.Parameter(rates.log().expand(48, 4).clone()), nn.Parameter(torch.ones(48))
        pace = torch.linspace(-2.3, -0.7, 48).exp()
        nn.init.normal_(self.project.weight, std=0.5)
        with torch.no_grad():
            self.pace.bias.copy_(pace if self.variant == "pace" else pace + (-torch.expm1(-pace)).log())

    def filtered(self, x: torch.Tensor) -> torch.Tensor:
        x = x.mT
        if self.variant == "sliding":
            rows = F.pad(x, (3, 0)).unfold(-1, 4, 1)
            return ((rows * self.conv.weight).sum(-1) + self.conv.bias[:, None]).mT
        return (self.conv(x)[..., 3:] if self.variant == "cut" else self.conv(x)[..., : x.shape[-1]]).mT

    def scan(self, x: torch.Tensor, pace: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        keep = pace.unsqueeze(-1) * -self.rates.exp()
        drive = (pace * x).unsqueeze(-1) * b.unsqueeze(2)
        if self.variant == "matrix":
            total = keep.cumsum(1)
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)[..., None, None]
            share = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill(hidden, -torch.inf).exp()
            return torch.einsum("btscn,bscn,btn->btc", share, drive, c)
        if self.variant == "cumsum":
            total = keep.cumsum(1)
            states = total.exp() * (drive * (-total).exp()).cumsum(1)
        else:
            state, seen = torch.zeros_like(drive[:, 0]), []
            for i in range(x.shape[1]):
                state = keep[:, i].exp() * state + drive[:, i]
                seen.append(state)
            states = torch.stack(seen, 1)
        return (states * c.unsqueeze(2)).sum(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        if self.variant == "two maps":
            first, second = self.enter.weight.chunk(2)
            u, gate = F.linear(h, first), F.linear(h, second)
        else:
            u, gate = self.enter(h).chunk(2, -1)
        u = F.silu(self.filtered(u))
        pace, b, c = self.project(u).split([4, 4, 4], -1)
        pace = self.pace(pace)
        if self.variant == "positive":
            pace = pace.exp()
        elif self.variant == "logaddexp":
            pace = torch.logaddexp(pace, torch.zeros_like(pace))
        else:
            pace = F.softplus(pace)
        y, gate = self.scan(u, pace, b, c), F.silu(gate)
        if self.variant == "gate":
            return x + self.leave(y * gate + self.skip * u)
        return x + self.leave((y if self.variant == "skip" else y + self.skip * u) * gate)


class SelectiveScan(Program):
    """A language model of two such blocks; rates and biases do not decay, and gradients are clipped."""

    broad = True
    mistakes = {
        "cut": ("argument",), "rates": ("input",), "positive": ("structure",), "skip": ("structure",), "pace": ("input",),
        "eps": ("argument",), "decay": ("optimizer", "argument", "structure"), "clip": ("argument", "structure", "gradient", "optimizer"),
        "gate": ("structure",), "aim": ("argument", "input"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("cumsum", "matrix", "sliding", "two maps", "logaddexp", "one by one", "checkpointed")

    def build(self) -> None:
        self.words, self.blocks = nn.Embedding(80, 32), nn.ModuleList(Scanned(self) for _ in range(2))
        self.norm, self.head = RootNorm(32), nn.Linear(32, 80, bias=False)

    def forgotten(self) -> nn.Parameter:
        return self.blocks[1].project.weight

    def groups(self) -> list[list[Any]]:
        plain = [p for n, p in self.named_parameters() if "rates" in n or p.dim() < 2]
        decayed = [p for n, p in self.named_parameters() if "rates" not in n and p.dim() > 1]
        free = 0.1 if self.variant == "decay" else 0.0
        return [[{"params": decayed}, {"params": plain, "weight_decay": free}]]

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.1}

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 80, 4, 13)
        x = self.words(ids[:, :-1])
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.variant == "checkpointed" else block(x)
        aim = ids[:, :-1] if self.variant == "aim" else ids[:, 1:]
        return F.cross_entropy(wide(self.head(self.norm(x))).flatten(0, 1), aim.flatten())

    def before_update(self) -> None:
        largest = float(self.choose("clip", 0.1, 1.0))
        nn.utils.clip_grad_norm_(self.parameters(), largest, foreach=self.variant != "one by one")


class LowRank(Program):
    """Keys and values come from a few numbers of each token, beside a key of positions; words are tied to the head."""

    broad = True
    optimizers = ("muon",)
    mistakes = {
        "base": ("input",), "halves": ("structure",), "positions": ("input", "argument"), "scale": ("argument",),
        "latent norm": ("structure",), "untied": ("input", "structure"), "causal": ("argument",), "size": ("structure",),
        "nesterov": ("optimizer", "argument", "structure"), "dtype": ("dtype", "structure"), "spread": ("argument",),
        "unloaded": ("input",),
    }  # fmt: skip
    alike = ("absorbed", "fused", "added", "complex", "per head", "gathered", "concatenated late")

    def build(self) -> None:
        self.words = nn.Embedding(90, 48)
        nn.init.normal_(self.words.weight, std=0.1)
        self.first, self.second, self.last = RootNorm(48), RootNorm(48), RootNorm(48)
        self.query, self.down = nn.Linear(48, 60, bias=False), nn.Linear(48, 24, bias=False)
        self.small, self.up, self.out = RootNorm(16), nn.Linear(16, 72, bias=False), nn.Linear(36, 48, bias=False)
        self.gate, self.enter, self.leave = (nn.Linear(*size, bias=False) for size in ((48, 64), (48, 64), (64, 48)))
        other = torch.randn(90, 48, generator=torch.Generator().manual_seed(5)) * 0.1
        self.head = nn.Parameter(other) if self.variant == "untied" else None
        base = float(self.choose("base", 10.0, 1000.0))
        self.register_buffer("speeds", base ** (-torch.arange(4) / 4))

    def forgotten(self) -> nn.Parameter:
        return self.up.weight

    def groups(self) -> list[list[Any]]:
        matrices = [p for n, p in self.named_parameters() if p.dim() == 2 and "words" not in n and n != "head"]
        rest = [p for n, p in self.named_parameters() if p.dim() != 2 or "words" in n or n == "head"]
        return [[{"params": matrices}, {"params": rest, "plain": True}]]

    def options(self) -> dict[str, Any]:
        return {"nesterov": self.variant != "nesterov"}

    def turned(self, x: torch.Tensor, start: int = 0) -> torch.Tensor:
        """Pairs of x (batch, time, head, 8), turned by their place."""
        angles = (torch.arange(start, start + x.shape[1])[:, None] * self.speeds)[:, None]
        if self.variant == "complex":
            both = torch.view_as_complex(wide(x).unflatten(-1, (4, 2)).contiguous())
            return torch.view_as_real(both * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        if self.variant == "halves":
            a, b = x.chunk(2, -1)
            return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
        a, b = x.unflatten(-1, (4, 2)).unbind(-1)
        return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(-2)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, q_place = self.query(x).unflatten(-1, (3, 20)).split([12, 8], -1)
        low, k_place = self.down(x).split([16, 8], -1)
        low = low if self.variant == "latent norm" else self.small(low)
        q_place, k_place = self.turned(q_place), self.turned(k_place.unsqueeze(2), int(self.choose("positions", 1, 0)))
        scale = float(self.choose("scale", 12.0, 20.0)) ** -0.5
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(int(self.choose("causal", 2, 1)))
        wk, wv = self.up.weight.view(3, 24, 16).split(12, 1)
        if self.variant == "absorbed":
            scores = torch.einsum("bthd,hdc,bsc->bhts", q, wk, low) + torch.einsum("bthd,bsd->bhts", q_place, k_place.squeeze(2))
            share = (scores * scale).masked_fill(hidden, -torch.inf).softmax(-1)
            return self.out(torch.einsum("bhts,bsc,hdc->bthd", share, low, wv).flatten(2))
        if self.variant == "per head":
            k, v = torch.einsum("btc,hdc->bthd", low, wk), torch.einsum("btc,hdc->bthd", low, wv)
        else:
            k, v = self.up(low).unflatten(-1, (3, 24)).chunk(2, -1)
        if self.variant == "concatenated late":
            scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) + q_place.transpose(1, 2) @ k_place.permute(0, 2, 3, 1)
        else:
            q = torch.cat([q, q_place], -1).transpose(1, 2)
            k = torch.cat([k, k_place.expand(-1, -1, 3, -1)], -1).transpose(1, 2)
            if self.variant == "fused":
                same = q.to(v.dtype), k.to(v.dtype), v.transpose(1, 2)
                return self.out(F.scaled_dot_product_attention(*same, is_causal=True, scale=scale).transpose(1, 2).flatten(2))
            scores = q @ k.mT
        scores = scores * scale
        if self.variant == "added":
            scores = scores + torch.zeros(hidden.shape, dtype=scores.dtype).masked_fill(hidden, -torch.inf)
        else:
            scores = scores.masked_fill(hidden, -torch.inf)
        share = scores.to(torch.bfloat16).softmax(-1).to(scores.dtype) if self.variant == "dtype" else scores.softmax(-1)
        return self.out((share @ v.transpose(1, 2).to(share.dtype)).transpose(1, 2).flatten(2))

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 90, 4, 15)
        x = self.words(ids[:, :-1])
        x = x if self.variant == "size" else x * 48**0.5
        x = x + self.attend(self.first(x))
        h = self.second(x)
        x = x + self.leave(F.silu(self.gate(h)) * self.enter(h))
        head = self.words.weight if self.head is None else self.head
        logits, aim = wide(F.linear(self.last(x), head)).flatten(0, 1), ids[:, 1:].flatten()
        size = logits.logsumexp(-1)
        far = float(self.choose("spread", 1e-2, 1e-4)) * size.square().mean()
        if self.variant == "gathered":
            return (size - logits.gather(1, aim[:, None]).squeeze(1)).mean() + far
        return F.cross_entropy(logits, aim) + far


PROGRAMS: dict[str, type[Program]] = {"retention": Retention, "selective_scan": SelectiveScan, "low_rank": LowRank}
