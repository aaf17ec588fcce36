"""Programs of features: a large dictionary of which few words are used at once, and pairs of places that look at triangles."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Dictionary(Program):
    """What a network felt is written with six words of 64. Words that were long unused write what is left over."""

    broad = True
    optimizers = ("nadam",)
    mistakes = {
        "six": ("argument",), "absolute": ("structure",), "uncentred": ("structure",), "no start": ("structure",), "untied": ("input",),
        "axis": ("argument", "input"), "along": ("structure", "gradient", "optimizer"), "extra": ("argument",),
        "held": ("structure", "gradient"), "unused": ("argument",), "unscaled": ("structure",), "spread": ("structure",),
        "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("least", "bags", "einsum", "moved bias", "by hand", "halves", "sorted")

    def build(self) -> None:
        words = F.normalize(torch.randn(64, 32), dim=1)
        self.words, self.start, self.bias = nn.Parameter(words), nn.Parameter(torch.randn(32) * 0.3), nn.Parameter(torch.zeros(64))
        other = torch.randn(64, 32, generator=torch.Generator().manual_seed(6)) / 32**0.5
        self.found = nn.Parameter(other if self.variant == "untied" else words.clone())
        self.register_buffer("mixed", torch.randn(48, 32, generator=torch.Generator().manual_seed(7)))
        self.register_buffer("idle", torch.where(torch.arange(64) % 3 == 0, 50, torch.arange(64) % 30))

    def forgotten(self) -> nn.Parameter:
        return self.found

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.9)} if self.variant == "betas" else {}

    def felt(self, step: int) -> torch.Tensor:
        """Sums of few of 48 directions, of equal mean length."""
        raw = self.normal(step, 40, 48)
        x = (raw * (raw > 1.2)) @ self.mixed.to(raw.dtype) + 0.5
        return x if self.variant == "unscaled" else x * (32**0.5 / wide(x).norm(dim=1).mean()).to(x.dtype)

    def chosen(self, raw: torch.Tensor, count: int) -> torch.Tensor:
        """All but the largest of each row are nought."""
        if self.variant == "least":
            return torch.where(raw >= raw.topk(count).values[:, -1:], raw, torch.zeros_like(raw))
        if self.variant == "sorted":
            order = raw.argsort(1, descending=True)[:, :count]
            return torch.zeros_like(raw).scatter(1, order, raw.gather(1, order))
        if self.variant == "absolute":
            places = raw.abs().topk(count).indices
            return torch.zeros_like(raw).scatter(1, places, raw.gather(1, places))
        values, places = raw.topk(count)
        return torch.zeros_like(raw).scatter(1, places, values)

    def read(self, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "moved bias":
            raw = F.linear(x, self.found, self.bias - self.found @ self.start)
        elif self.variant == "einsum":
            raw = torch.einsum("nd,kd->nk", x - self.start, self.found) + self.bias
        else:
            raw = F.linear(x if self.variant == "uncentred" else x - self.start, self.found, self.bias)
        return wide(raw if self.variant == "absolute" else raw.relu())

    def written(self, code: torch.Tensor) -> torch.Tensor:
        words = wide(self.words)
        if self.variant == "bags":
            values, places = code.topk(8)
            return F.embedding_bag(places, words, per_sample_weights=values, mode="sum")
        return torch.einsum("nk,kd->nd", code, words) if self.variant == "einsum" else code @ words

    def loss(self, step: int) -> torch.Tensor:
        x = self.felt(step)
        raw = torch.cat([self.read(part) for part in x.split(20)]) if self.variant == "halves" else self.read(x)
        code = self.chosen(raw, int(self.choose("six", 8, 6)))
        x = wide(x)
        out = self.written(code)
        out = out if self.variant == "no start" else out + wide(self.start)
        rest = x - out
        unused = self.idle > int(self.choose("unused", 20, 40))
        late = self.written(self.chosen(raw.masked_fill(~unused, 0.0), 8))
        left = rest if self.variant == "held" else rest.detach()
        spread = 1.0 if self.variant == "spread" else (x - x.mean(0)).square().mean()
        with torch.no_grad():
            fired = (code > 0).any(0)
            self.idle.add_(1).masked_fill_(fired, 0)
        return (rest.square().mean() + float(self.choose("extra", 1.0, 1 / 8)) * (left - late).square().mean()) / spread

    def before_update(self) -> None:
        """A step along a word would change its length alone."""
        if self.variant == "along":
            return
        with torch.no_grad():
            grad, words = self.words.grad, self.words
            if self.variant == "by hand":
                grad.sub_(torch.einsum("kd,kd->k", grad, words)[:, None] * words)
            else:
                grad.sub_((grad * words).sum(1, keepdim=True) * words)

    def after_update(self) -> None:
        with torch.no_grad():
            dim = 0 if self.variant == "axis" else 1
            if self.variant == "by hand":
                self.words.div_(self.words.square().sum(1, keepdim=True).sqrt())
            else:
                self.words.copy_(F.normalize(self.words, dim=dim))


class Product(nn.Module):
    """The third side of each triangle, from the two others."""

    def __init__(self, program: Program, incoming: bool) -> None:
        super().__init__()
        self.variant, self.incoming = program.variant, incoming and program.variant != "outgoing"
        self.first, self.late = nn.LayerNorm(16), nn.LayerNorm(8, float(program.choose("eps", 1e-1, 1e-5)) if incoming else 1e-5)
        self.sides, self.gates, self.out, self.gate = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, pairs: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        z = self.first(pairs)
        if self.variant == "one map":
            weight, bias = torch.cat([self.sides.weight, self.gates.weight]), torch.cat([self.sides.bias, self.gates.bias])
            sides, gates = F.linear(z, weight, bias).chunk(2, -1)
        else:
            sides, gates = self.sides(z), self.gates(z)
        a, b = (sides * gates.sigmoid() * seen[..., None]).chunk(2, -1)
        if self.variant == "einsum":
            h = torch.einsum("bkic,bkjc->bijc" if self.incoming else "bikc,bjkc->bijc", a, b)
        else:
            a, b = a.permute(0, 3, 1, 2), b.permute(0, 3, 1, 2)
            h = (a.mT @ b if self.incoming else a @ b.mT).permute(0, 2, 3, 1)
        h = self.out(h.to(z.dtype) if self.variant == "no norm" else self.late(h.to(z.dtype)))
        return h if self.variant == "ungated" else h * self.gate(z).sigmoid()


class Look(nn.Module):
    """Each side looks at those that begin in the same place; the third side says how much."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.variant = program.variant
        self.first, self.qkv, self.bias = nn.LayerNorm(16), nn.Linear(16, 48, bias=False), nn.Linear(16, 2, bias=False)
        self.gate, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, pairs: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """`real` is (batch, place)."""
        z = self.first(pairs)
        q, k, v = self.qkv(z).unflatten(-1, (3, 2, 8)).permute(3, 0, 1, 4, 2, 5)
        bias = self.bias(z).permute(0, 3, 2, 1) if self.variant == "turned bias" else self.bias(z).permute(0, 3, 1, 2)
        hidden = ~real[:, None, None, None]
        scale = 1 / 8 if self.variant == "scale" else 8**-0.5
        if self.variant == "fused":
            mask = bias[:, None].masked_fill(hidden, -1e4).expand(-1, z.shape[1], -1, -1, -1)
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            scores = wide((torch.einsum("bihjd,bihkd->bihjk", q, k) if self.variant == "einsum" else q @ k.mT) * scale + bias[:, None])
            share = (scores if self.variant == "unhidden" else scores.masked_fill(hidden, -1e4)).softmax(-1)
            h = share.to(v.dtype) @ v
        h = h.transpose(2, 3).flatten(3)
        return self.out(h if self.variant == "ungated" else h * self.gate(z).sigmoid())


class Triangles(Program):
    """Related sequences say which places of a chain lie near to one another; pairs of places are told by the triangles that they are in."""

    broad = True
    optimizers = ("fused",)
    mistakes = {
        "outgoing": ("structure",), "not turned": ("structure",), "turned bias": ("structure", "argument"), "ungated": ("structure",),
        "summed": ("structure", "argument"), "one sided": ("structure",), "unhidden": ("structure",), "scale": ("argument",),
        "eps": ("argument",), "no norm": ("structure",), "reach": ("argument",), "edges": ("input",), "padding": ("structure",),
        "decay": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("einsum", "one map", "fused", "mirrored", "counted", "checkpointed", "mean of products")

    def build(self) -> None:
        self.kinds, self.gaps = nn.Embedding(22, 16), nn.Embedding(9, 16)
        self.before, self.left, self.right, self.joined = nn.LayerNorm(16), nn.Linear(16, 4), nn.Linear(16, 4), nn.Linear(16, 16)
        self.products = nn.ModuleList(Product(self, i) for i in (False, True))
        self.looks = nn.ModuleList(Look(self) for _ in range(2))
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.last, self.head = nn.LayerNorm(16), nn.Linear(16, 8)
        self.register_buffer("edges", torch.linspace(0.5, 4.5, 7) if self.variant == "edges" else torch.linspace(0.5, 3.5, 7))

    def forgotten(self) -> nn.Parameter:
        return self.products[1].out.weight

    def options(self) -> dict[str, Any]:
        return {"weight_decay": 0.5} if self.variant == "decay" else {"weight_decay": 1e-3}

    def met(self, rows: torch.Tensor) -> torch.Tensor:
        """The mean of outer products of (batch, row, place, 16)."""
        h = self.before(rows)
        a, b = self.left(h), self.right(h)
        if self.variant == "mean of products":
            return self.joined((a[:, :, :, None, :, None] * b[:, :, None, :, None, :]).mean(1).flatten(3))
        both = torch.einsum("bsic,bsjd->bijcd", a, b).flatten(3)
        return self.joined(both if self.variant == "summed" else both / rows.shape[1])

    def refined(self, pairs: torch.Tensor, seen: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        for product in self.products:
            pairs = pairs + product(pairs, seen)
        pairs = pairs + self.looks[0](pairs, real)
        if self.variant == "not turned":
            pairs = pairs + self.looks[1](pairs, real)
        else:
            pairs = pairs + self.looks[1](pairs.transpose(1, 2), real).transpose(1, 2)
        return pairs + self.mlp(pairs)

    def loss(self, step: int) -> torch.Tensor:
        rows, places = self.kinds(self.numbers(step, 22, 3, 4, 8)), wide(self.normal(step, 3, 8, 3, stream=1))
        line = torch.arange(8)
        real = line < torch.tensor([8, 6, 7])[:, None]
        seen = real[:, :, None] & real[:, None]
        reach = int(self.choose("reach", 3, 4))
        pairs = self.gaps((line[:, None] - line).clamp(-reach, reach) + 4) + self.met(rows)
        if self.variant == "checkpointed":
            pairs = checkpoint(self.refined, pairs, seen, real, use_reentrant=False)
        else:
            pairs = self.refined(pairs, seen, real)
        z = self.last(pairs)
        if self.variant == "one sided":
            logits = self.head(z)
        elif self.variant == "mirrored":
            logits = self.head(z)
            logits = 0.5 * (logits + logits.transpose(1, 2))
        else:
            logits = self.head(0.5 * (z + z.transpose(1, 2)))
        far = (places[:, :, None] - places[:, None]).square().sum(-1).sqrt()
        kinds = (far[..., None] > wide(self.edges)).sum(-1) if self.variant == "counted" else torch.bucketize(far, wide(self.edges))
        each = F.cross_entropy(wide(logits).flatten(0, 2), kinds.flatten(), reduction="none").view(3, 8, 8)
        return (each if self.variant == "padding" else each * seen).sum() / seen.sum()

    def before_update(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 0.5)


PROGRAMS: dict[str, type[Program]] = {"dictionary": Dictionary, "triangles": Triangles}
