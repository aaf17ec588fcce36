"""Language models of other parts: experts beside one that all tokens share, and a memory that is corrected by what it missed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Expert(nn.Module):
    """A gated network."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.both, self.leave = nn.Linear(32, 2 * inner, bias=False), nn.Linear(inner, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, x = self.both(x).chunk(2, -1)
        return self.leave(F.silu(gate) * x)


class SharedExperts(Program):
    """Two of six experts for each token, and one for all. A lean towards experts with little to do takes the place of a loss."""

    broad = True
    optimizers = ("muon",)
    mistakes = {
        "leaning weights": ("structure",), "softmax": ("structure",), "factor": ("argument",), "normalised": ("structure",),
        "unshared": ("structure",), "away": ("argument", "structure", "input"), "pace": ("argument", "input"),
        "three": ("argument",), "unbiased": ("structure",), "rounds": ("optimizer", "argument", "structure"),
        "momentum": ("optimizer", "argument"), "start": ("input",), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("dense", "sorted", "batched", "late factor", "two maps", "one product", "formula")

    def build(self) -> None:
        self.words, self.head = nn.Embedding(88, 32), nn.Linear(32, 88, bias=False)
        self.first, self.second, self.last = RootNorm(32), RootNorm(32), RootNorm(32)
        self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)
        self.gate = nn.Linear(32, 6, bias=False)
        self.shared, self.experts = Expert(48), nn.ModuleList(Expert(24) for _ in range(6))
        nn.init.normal_(self.gate.weight, std=0.3)
        self.register_buffer("lean", torch.zeros(6) if self.variant == "start" else torch.linspace(-0.2, 0.2, 6))

    def forgotten(self) -> nn.Parameter:
        return self.experts[3].leave.weight

    def groups(self) -> list[list[Any]]:
        matrices = [p for n, p in self.named_parameters() if p.dim() == 2 and "words" not in n and "head" not in n]
        rest = [p for n, p in self.named_parameters() if p.dim() != 2 or "words" in n or "head" in n]
        return [[{"params": matrices}, {"params": rest, "plain": True}]]

    def options(self) -> dict[str, Any]:
        return {"rounds": int(self.choose("rounds", 3, 5)), "momentum": float(self.choose("momentum", 0.8, 0.95))}

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            hidden = torch.ones(15, 15, dtype=torch.bool).triu(1)
            out = (q @ k.mT * 8**-0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).flatten(2))

    def routed(self, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The experts of each token, and their weights."""
        raw = wide(self.gate(h))
        score = raw.softmax(-1) if self.variant == "softmax" else raw.sigmoid()
        leaning = score if self.variant == "unbiased" else score + self.lean
        chosen = leaning.topk(3 if self.variant == "three" else 2, -1).indices
        weight = (leaning if self.variant == "leaning weights" else score).gather(-1, chosen)
        if self.variant != "normalised":
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return chosen, weight if self.variant == "late factor" else weight * float(self.choose("factor", 1.0, 2.5))

    def mixed(self, h: torch.Tensor) -> torch.Tensor:
        chosen, weight = self.routed(h)
        with torch.no_grad():
            self.load = F.one_hot(chosen, 6).sum((0, 1)).to(self.lean.dtype)
        if self.variant in ("dense", "one product"):
            full = torch.zeros(len(h), 6, dtype=weight.dtype).scatter(-1, chosen, weight)
            if self.variant == "one product":
                made = torch.stack([expert(h) for expert in self.experts], 1)
                return (full[:, None] @ made).squeeze(1)
            return sum(full[:, i : i + 1] * expert(h) for i, expert in enumerate(self.experts))
        if self.variant == "batched":
            both, leave = (torch.stack([getattr(e, n).weight for e in self.experts])[chosen] for n in ("both", "leave"))
            gate, x = torch.einsum("tkoi,ti->tko", both, h).chunk(2, -1)
            return torch.einsum("tkoi,tki,tk->to", leave, F.silu(gate) * x, weight)
        if self.variant == "sorted":
            order = chosen.flatten().argsort(stable=True)
            counts = torch.bincount(chosen.flatten(), minlength=6).tolist()
            made = torch.cat([expert(x) for expert, x in zip(self.experts, h[order // 2].split(counts), strict=True)])
            made = made[order.argsort()].view(len(h), 2, 32)
            return (made * weight[..., None]).sum(1)
        out = torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            token, slot = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, token, (expert(h[token]) * weight[token, slot, None]).to(out.dtype))
        return out * 2.5 if self.variant == "late factor" else out

    def common(self, h: torch.Tensor) -> torch.Tensor:
        if self.variant == "two maps":
            gate, x = (F.linear(h, w) for w in self.shared.both.weight.chunk(2))
            return self.shared.leave(F.silu(gate) * x)
        return self.shared(h)

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 88, 4, 16)
        x = self.words(ids[:, :-1])
        x = x + self.attend(self.first(x))
        h = self.second(x).flatten(0, 1)
        out = self.mixed(h)
        x = x.flatten(0, 1) + (out if self.variant == "unshared" else out + self.common(h))
        return F.cross_entropy(wide(self.head(self.last(x.to(h.dtype)))), ids[:, 1:].flatten())

    def after_update(self) -> None:
        by = float(self.choose("pace", 0.1, 0.02)) * (-1 if self.variant == "away" else 1)
        with torch.no_grad():
            self.lean.add_((self.load.mean() - self.load).sign(), alpha=by)


class Corrected(nn.Module):
    """A block whose memory fades, and is told of each key only what it did not know of it yet."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.variant = program.variant
        self.norm, self.small = RootNorm(32), RootNorm(16, float(program.choose("eps", 1e-2, 1e-6)))
        self.qkv, self.conv = nn.Linear(32, 96, bias=False), nn.Conv1d(96, 96, 4, padding=3, groups=96, bias=False)
        self.both, self.gate, self.leave = nn.Linear(32, 4), nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        # A factor of 2 lets what a key stood for be turned round, which is an option of such models.
        self.most = float(program.choose("write", 2.0, 1.0))
        rates = torch.tensor([1.0, 1.0] if self.variant == "rates" else [0.5, 2.0])
        self.rates, self.pace = nn.Parameter(rates.log()), nn.Parameter(torch.tensor([-2.0, -1.0]))

    def filtered(self, x: torch.Tensor) -> torch.Tensor:
        x = x.mT
        if self.variant == "sliding":
            return (F.pad(x, (3, 0)).unfold(-1, 4, 1) * self.conv.weight).sum(-1).mT
        return (self.conv(x)[..., 3:] if self.variant == "cut" else self.conv(x)[..., : x.shape[-1]]).mT

    def unit(self, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "long":
            return x
        if self.variant == "divided":
            return x / x.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-6)
        return F.normalize(x, dim=-1, eps=1e-6)

    def scan(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, write: torch.Tensor) -> torch.Tensor:
        """q, k, v read batch, time, head, width; the logarithm of what is kept, and how much is written, batch, time, head."""
        if self.variant == "solved":
            return self.solved(*(t.transpose(1, 2) for t in (q, k, v, keep, write))).transpose(1, 2)
        state, out = v.new_zeros(len(q), 2, 16, 16), []
        for i in range(q.shape[1]):
            key, fade, by = k[:, i, :, :, None], keep[:, i, :, None, None].exp(), write[:, i, :, None, None]
            if self.variant == "expanded":
                state = fade * (state - by * key @ (key.mT @ state)) + by * key * v[:, i, :, None]
            elif self.variant == "order":
                missed = v[:, i, :, None] - key.mT @ state
                state = fade * state + key * by * missed
            else:
                state = fade * state
                state = state + key * by * (v[:, i, :, None] - key.mT @ state)
            if self.variant == "einsum":
                out.append(torch.einsum("bhk,bhkv->bhv", q[:, i], state))
            else:
                out.append((q[:, i, :, None] @ state).squeeze(2))
        return torch.stack(out, 1)

    def solved(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, write: torch.Tensor) -> torch.Tensor:
        """All corrections at once, as the solution of a triangular system."""
        total = keep.cumsum(-1)
        fade = (total[..., :, None] - total[..., None, :]).tril().exp().tril()
        system = (write[..., None] * (k @ k.mT) * fade).tril(-1)
        told = torch.linalg.solve_triangular(system, write[..., None] * v, upper=False, unitriangular=True)
        return (q @ k.mT * fade) @ told

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        mixed = self.filtered(self.qkv(h))
        mixed = wide(mixed if self.variant == "bare" else F.silu(mixed))
        q, k, v = mixed.unflatten(-1, (3, 2, 16)).unbind(2)
        q, k = self.unit(q) * (1.0 if self.variant == "scale" else 16**-0.5), self.unit(k)
        if self.variant == "apart":
            raw, pace = (F.linear(h, w, b) for w, b in zip(self.both.weight.chunk(2), self.both.bias.chunk(2), strict=True))
        else:
            raw, pace = self.both(h).chunk(2, -1)
        write, pace = wide(raw).sigmoid() * self.most, wide(pace) + wide(self.pace)
        pace = pace.exp() if self.variant == "positive" else F.softplus(pace)
        y = self.scan(q, k, v, -wide(self.rates).exp() * pace, write).to(x.dtype)
        gate = self.gate(h).unflatten(-1, (2, 16))
        if self.variant == "early gate":
            return x + self.leave(self.small(y * F.silu(gate)).flatten(2))
        return x + self.leave((self.small(y) * F.silu(gate)).flatten(2))


class DeltaRule(Program):
    """A language model of two such blocks, each with a network behind it."""

    broad = True
    optimizers = ("adafactor",)
    mistakes = {
        "long": ("structure",), "eps": ("argument",), "write": ("argument",), "order": ("structure",), "scale": ("argument",),
        "cut": ("argument",), "bare": ("structure",), "rates": ("input",), "positive": ("structure",), "early gate": ("structure",),
        "aim": ("argument", "input"), "fading": ("optimizer", "argument"), "bound": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("expanded", "solved", "einsum", "sliding", "divided", "apart", "checkpointed")

    def build(self) -> None:
        self.words, self.blocks = nn.Embedding(80, 32), nn.ModuleList(Corrected(self) for _ in range(2))
        self.norms = nn.ModuleList(RootNorm(32) for _ in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 80), nn.GELU(), nn.Linear(80, 32)) for _ in range(2))
        self.last, self.head = RootNorm(32), nn.Linear(32, 80, bias=False)

    def forgotten(self) -> nn.Parameter:
        return self.blocks[1].conv.weight

    def options(self) -> dict[str, Any]:
        return {"beta2_decay": float(self.choose("fading", -0.3, -0.8)), "d": float(self.choose("bound", 2.0, 1.0))}

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 80, 4, 13)
        x = self.words(ids[:, :-1])
        for block, norm, mlp in zip(self.blocks, self.norms, self.mlps, strict=True):
            x = checkpoint(block, x, use_reentrant=False) if self.variant == "checkpointed" else block(x)
            x = x + mlp(norm(x))
        aim = ids[:, :-1] if self.variant == "aim" else ids[:, 1:]
        return F.cross_entropy(wide(self.head(self.last(x))).flatten(0, 1), aim.flatten())


PROGRAMS: dict[str, type[Program]] = {"shared_experts": SharedExperts, "delta_rule": DeltaRule}
