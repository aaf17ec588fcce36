"""Programs of languages as transformers: a decoder with few keys on packed documents, and an encoder with a decoder that translates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class GroupedQueries(Program):
    """A decoder whose heads share keys in pairs. Documents are packed into rows, and two small batches make a step."""

    broad = True
    mistakes = {
        "base": ("input",), "pairs": ("structure",), "documents": ("argument", "structure"), "stretched": ("structure", "argument"),
        "repeat": ("structure", "argument"), "gate": ("structure",), "eps": ("argument",), "means": ("argument", "structure"),
        "padding": ("structure", "input"), "warmup": ("optimizer", "argument"), "norms decay": ("optimizer", "argument", "structure"),
        "values": ("structure", "gradient", "optimizer"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("rotated", "complex", "grouped", "expanded", "formula", "one map", "whole", "checkpointed")

    def build(self) -> None:
        eps = float(self.choose("eps", 1e-2, 1e-5))
        self.words, self.head = nn.Embedding(96, 48), nn.Linear(48, 96, bias=False)
        self.firsts = nn.ModuleList(RootNorm(48, 1e-5) for _ in range(2))
        self.seconds = nn.ModuleList(RootNorm(48, eps if i else 1e-5) for i in range(2))
        self.queries, self.outs = (nn.ModuleList(nn.Linear(48, 48, bias=False) for _ in range(2)) for _ in range(2))
        self.keys, self.values = (nn.ModuleList(nn.Linear(48, 24, bias=False) for _ in range(2)) for _ in range(2))
        self.gates, self.enters = (nn.ModuleList(nn.Linear(48, 96, bias=False) for _ in range(2)) for _ in range(2))
        self.leaves, self.last = nn.ModuleList(nn.Linear(96, 48, bias=False) for _ in range(2)), RootNorm(48, 1e-5)
        self.register_buffer("speeds", float(self.choose("base", 10000.0, 500.0)) ** (-torch.arange(6) / 6))

    def forgotten(self) -> nn.Parameter:
        return self.keys[1].weight

    def groups(self) -> list[list[Any]]:
        norms = [p for p in self.parameters() if p.dim() < 2]
        free = 0.1 if self.variant == "norms decay" else 0.0
        self.paced = [{"params": [p for p in self.parameters() if p.dim() > 1]}, {"params": norms, "weight_decay": free}]
        self.done = 0
        self.warm()
        return [self.paced]

    def options(self) -> dict[str, Any]:
        return {"weight_decay": 0.1, "betas": (0.9, 0.95)}

    def warm(self) -> None:
        """The rate of the next step."""
        for group in self.paced:
            group["lr"] = 2e-3 * min(1.0, (self.done + (0.25 if self.variant == "warmup" else 1)) / 4)

    def turned(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Rows of x (batch, time, head, 12), turned by their places (batch, time)."""
        angles = (places[..., None] * self.speeds)[:, :, None]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.variant == "pairs":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        if self.variant == "rotated":
            return x * torch.cat([cos, cos], -1) + torch.cat([-b, a], -1) * torch.cat([sin, sin], -1)
        if self.variant == "complex":
            both = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
            return torch.cat([both.real, both.imag], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, x: torch.Tensor, i: int, places: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q = self.turned(self.queries[i](x).unflatten(-1, (4, 12)), places).transpose(1, 2)
        k = self.turned(self.keys[i](x).unflatten(-1, (2, 12)), places)
        v = self.values[i](x).unflatten(-1, (2, 12))
        if self.variant == "grouped":
            scores = torch.einsum("bgrtd,bsgd->bgrts", q.unflatten(1, (2, 2)), k) * 12**-0.5
            share = scores.masked_fill(~seen[:, None, None], -torch.inf).softmax(-1)
            return self.outs[i](torch.einsum("bgrts,bsgd->btgrd", share, v).flatten(2))
        if self.variant == "repeat":
            k, v = k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1)
        elif self.variant == "expanded":
            k, v = (t.unsqueeze(3).expand(-1, -1, -1, 2, -1).flatten(2, 3) for t in (k, v))
        else:
            k, v = k.repeat_interleave(2, 2), v.repeat_interleave(2, 2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        if self.variant == "formula":
            out = (q @ k.mT * 12**-0.5).masked_fill(~seen[:, None], -torch.inf).softmax(-1) @ v
        elif self.variant == "documents":
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
        return self.outs[i](out.transpose(1, 2).flatten(2))

    def layer(self, x: torch.Tensor, i: int, places: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.firsts[i](x), i, places, seen)
        h = self.seconds[i](x)
        if self.variant == "one map":
            gate, h = F.linear(h, torch.cat([self.gates[i].weight, self.enters[i].weight])).chunk(2, -1)
        else:
            gate, h = self.gates[i](h), self.enters[i](h)
        return x + self.leaves[i]((F.gelu(gate) if self.variant == "gate" else F.silu(gate)) * h)

    def total(self, ids: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of all tokens of a small batch. Document 0 is padding."""
        x, seen = self.words(ids[:, :-1]), (kinds[:, :-1, None] == kinds[:, None, :-1]).tril()
        places = seen.sum(-1) - 1
        places = places * 0.25 if self.variant == "stretched" else places
        for i in range(2):
            if self.variant == "checkpointed":
                x = checkpoint(self.layer, x, i, places, seen, use_reentrant=False)
            else:
                x = self.layer(x, i, places, seen)
        aim = ids[:, 1:]
        if self.variant != "padding":
            aim = aim.masked_fill((kinds[:, 1:] == 0) | (kinds[:, 1:] != kinds[:, :-1]), -100)
        logits = wide(self.head(self.last(x))).flatten(0, 1)
        if self.variant == "means":
            return F.cross_entropy(logits, aim.flatten())
        return F.cross_entropy(logits, aim.flatten(), reduction="sum")

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        ids, lengths = self.numbers(step, 96, 4, 17), ((6, 5, 6), (9, 8, 0), (4, 7, 0), (3, 3, 0))
        kinds = torch.tensor([[1] * a + [2] * b + [3] * c + [0] * (17 - a - b - c) for a, b, c in lengths])
        count = 14 + 15 + 9 + 4
        if self.variant == "whole":
            yield self.total(ids, kinds) / count, 0
            return
        over = 2 if self.variant == "means" else count
        yield self.total(ids[:2], kinds[:2]) / over, None
        yield self.total(ids[2:], kinds[2:]) / over, 0

    def before_update(self) -> None:
        if self.variant == "values":
            nn.utils.clip_grad_value_(self.parameters(), 0.01)
        else:
            nn.utils.clip_grad_norm_(self.parameters(), 0.5)

    def after_update(self) -> None:
        self.done += 1
        self.warm()


class Interpreter(Program):
    """An encoder of padded sentences and a decoder that looks at itself and at them; the rate rises and falls with the step."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "polarity": ("structure",), "unhidden": ("argument", "structure"), "look": ("structure", "input"), "width": ("argument",),
        "waves": ("input",), "places": ("argument", "input"), "given": ("structure", "input"), "dropout": ("argument", "structure"),
        "smoothing": ("argument",), "counted": ("argument",), "late norm": ("structure",), "untied": ("input", "structure"),
        "pace": ("optimizer", "argument"), "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("by hand", "weights", "added", "smoothed", "norm by hand", "three maps", "halves")

    def build(self) -> None:
        self.words = nn.Embedding(72, 32)
        nn.init.normal_(self.words.weight, std=32**-0.5)
        self.looks = nn.ModuleList(nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(7))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 32)) for _ in range(2))
        other = torch.randn(72, 32, generator=torch.Generator().manual_seed(4)) * 32**-0.5
        self.head = nn.Parameter(other) if self.variant == "untied" else None
        angles = torch.arange(12.0)[:, None] * 10000.0 ** (-torch.arange(16) / 16)
        if self.variant == "waves":
            places = torch.cat([angles.sin(), angles.cos()], -1)
        else:
            places = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("places", places)

    def forgotten(self) -> nn.Parameter:
        return self.looks[2].in_proj_weight

    def groups(self) -> list[list[Any]]:
        self.paced, self.done = [{"params": list(self.parameters())}], 0
        self.pace()
        return [self.paced]

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.999 if self.variant == "betas" else 0.98), "eps": 1e-9}

    def pace(self) -> None:
        step = self.done + (2 if self.variant == "pace" else 1)
        self.paced[0]["lr"] = 0.5 * 32**-0.5 * min(step**-0.5, step * 10**-1.5)

    def normed(self, x: torch.Tensor, i: int) -> torch.Tensor:
        if self.variant == "norm by hand":
            norm, x = self.norms[i], x - x.mean(-1, keepdim=True)
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias
        return self.norms[i](x)

    def look(self, i: int, x: torch.Tensor, y: torch.Tensor, hidden: torch.Tensor | None, causal: torch.Tensor | None) -> torch.Tensor:
        """`hidden` (batch, key) and `causal` (query, key) are true where nobody looks."""
        look = self.looks[i]
        if self.variant not in ("by hand", "three maps"):
            if self.variant == "added":
                hidden, causal = (
                    None if m is None else torch.zeros(m.shape, dtype=x.dtype).masked_fill(m, -torch.inf) for m in (hidden, causal)
                )
            return look(x, y, y, key_padding_mask=hidden, attn_mask=causal, need_weights=self.variant == "weights")[0]
        both = zip((x, y, y), look.in_proj_weight.chunk(3), look.in_proj_bias.chunk(3), strict=True)
        if self.variant == "three maps":
            q, k, v = (F.linear(t, w, b).unflatten(-1, (4, 8)).transpose(1, 2) for t, w, b in both)
            unseen = hidden[:, None, None] if causal is None else causal
            return look.out_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=~unseen).transpose(1, 2).flatten(2))
        q, k, v = ((t @ w.T + b).unflatten(-1, (4, 8)) for t, w, b in both)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / 8**0.5
        share = scores.masked_fill(hidden[:, None, None] if causal is None else causal, -torch.inf).softmax(-1)
        return look.out_proj(torch.einsum("bhts,bshd->bthd", share, v.to(share.dtype)).flatten(2))

    def entered(self, ids: torch.Tensor) -> torch.Tensor:
        start = 1 if self.variant == "places" else 0
        x = self.words(ids) * (1.0 if self.variant == "width" else 32**0.5)
        x = x + self.places[start : start + ids.shape[1]]
        return F.dropout(x, 0.1) if self.variant == "dropout" else x

    def mapped(self, source: torch.Tensor, hidden: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        x = self.entered(source)
        h = self.normed(x, 0)
        x = x + self.look(0, h, h, hidden, None)
        x = x + self.mlps[0](self.normed(x, 1))
        memory = self.normed(x, 2)
        y = self.entered(given)
        causal = torch.ones(8, 8, dtype=torch.bool).triu(1)
        if self.variant == "late norm":
            y = self.normed(y + self.look(1, y, y, None, causal), 3)
        else:
            h = self.normed(y, 3)
            y = y + self.look(1, h, h, None, causal)
        seen = None if self.variant == "unhidden" else ~hidden if self.variant == "polarity" else hidden
        # Looking at the sentence before it was normed is easily done where a stack of layers returns both.
        y = y + self.look(2, self.normed(y, 4), x if self.variant == "look" else memory, seen, None)
        y = y + self.mlps[1](self.normed(y, 5))
        return F.linear(self.normed(y, 6), self.words.weight if self.head is None else self.head)

    def loss(self, step: int) -> torch.Tensor:
        source, aim = self.numbers(step, 70, 4, 10) + 2, self.numbers(step, 70, 4, 8, stream=1) + 2
        hidden = torch.arange(10) >= torch.tensor([7, 9, 5, 8])[:, None]
        aim[torch.arange(8) >= torch.tensor([6, 8, 7, 4])[:, None]] = 0
        source[hidden] = 0
        given = aim if self.variant == "given" else F.pad(aim, (1, -1), value=1)
        smooth, skip = float(self.choose("smoothing", 0.0, 0.1)), int(self.choose("counted", -100, 0))
        if self.variant == "halves":
            logits = torch.cat([self.mapped(source[i : i + 2], hidden[i : i + 2], given[i : i + 2]) for i in (0, 2)])
        else:
            logits = self.mapped(source, hidden, given)
        logits, aim = wide(logits).flatten(0, 1), aim.flatten()
        if self.variant == "smoothed":
            logs, real = logits.log_softmax(-1), aim != 0
            right = logs.gather(1, aim[:, None]).squeeze(1)
            return -((0.9 * right + 0.1 * logs.mean(-1)) * real).sum() / real.sum()
        return F.cross_entropy(logits, aim, ignore_index=skip, label_smoothing=smooth)

    def after_update(self) -> None:
        self.done += 1
        self.pace()


PROGRAMS: dict[str, type[Program]] = {"grouped_queries": GroupedQueries, "interpreter": Interpreter}
