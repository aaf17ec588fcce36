"""Programs of tables and series: clicks of users, whose features cross one another, and forecasts of several series by patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Crosses(Program):
    """Bags of ids and numbers beside them; a loss of single clicks and one of pairs, clicked and not."""

    broad = True
    optimizers = ("adagrad",)
    mistakes = {
        "hash": ("structure", "input", "argument"), "logarithm": ("structure",), "pooled": ("argument", "structure"), "first": ("structure",),
        "unweighted": ("argument", "structure"), "clicked": ("argument", "input"), "turned": ("structure",), "double": ("structure",),
        "padding": ("argument", "structure"), "summed": ("argument", "structure"), "kept": ("gradient", "optimizer", "structure"),
        "before": ("optimizer", "argument", "input"), "eps": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("by hand", "split maps", "one map", "softplus", "chosen pairs", "one table", "low first")

    def build(self) -> None:
        self.bags = nn.ModuleList(nn.EmbeddingBag(60, 12, mode="sum", padding_idx=self.padding(i)) for i in range(3))
        self.below = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 12))
        self.downs, self.ups = (nn.ModuleList(nn.Linear(*size, bias=i > 0) for _ in range(2)) for i, size in enumerate(((48, 8), (8, 48))))
        self.deep, self.head = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 24), nn.ReLU()), nn.Linear(72, 1)
        with torch.no_grad():
            for bag in self.bags:
                bag.weight.mul_(0.5)

    def padding(self, i: int) -> int | None:
        return None if self.variant == "padding" and i == 1 else 0

    def forgotten(self) -> nn.Parameter:
        return self.bags[2].weight

    def options(self) -> dict[str, Any]:
        return {"before": {"initial_accumulator_value": 0.1}, "eps": {"eps": 1e-2}}.get(self.variant, {})

    def pooled(self, i: int, ids: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """The sum of rows of a table by their shares. Id 0 is none."""
        bag = self.bags[i]
        if self.variant == "by hand":
            return (bag.weight[ids] * (share * (ids != 0))[..., None]).sum(1)
        if self.variant == "one table":
            table, start = torch.cat([b.weight for b in self.bags]), 60 * i
            return ((F.embedding(ids + start, table) * (ids != 0)[..., None]).mT @ share[..., None]).squeeze(-1)
        if self.variant == "unweighted":
            return bag(ids)
        if self.variant == "pooled":
            return F.embedding_bag(ids, bag.weight, mode="mean", padding_idx=0)
        return bag(ids, per_sample_weights=share)

    def crossed(self, x: torch.Tensor) -> torch.Tensor:
        first = x
        for down, up in zip(self.downs, self.ups, strict=True):
            if self.variant == "one map":
                h = F.linear(x, up.weight @ down.weight, up.bias)
            elif self.variant == "split maps":
                parts = zip(x.split(12, -1), down.weight.split(12, 1), strict=True)
                h = up(sum(F.linear(part, weight) for part, weight in parts))
            else:
                h = up(down(x))
            x = (x if self.variant == "first" else first) * h + x
        return x

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        if self.variant == "kept" and step:
            for p, grad in zip(self.parameters(), self.before, strict=True):
                p.grad = grad
        yield self.loss(step), 0

    def after_update(self) -> None:
        if self.variant == "kept":
            self.before = [p.grad for p in self.parameters()]

    def loss(self, step: int) -> torch.Tensor:
        seen, clicked = self.normal(step, 24, 8).exp(), self.numbers(step, 3, 24, stream=9) == 0
        fields = []
        for i in range(3):
            raw, share = self.numbers(step, 5000, 24, 4, stream=i), self.normal(step, 24, 4, stream=4 + i).sigmoid()
            ids = raw % 60 if self.variant == "hash" else raw % 59 + 1
            fields.append(self.pooled(i, ids.masked_fill(raw % 5 == 0, 0), share))
        fields.append(self.below(seen.log() if self.variant == "logarithm" else seen.log1p()))
        x = torch.cat(fields, -1)
        if self.variant == "low first":
            a, b = self.head.weight.split([48, 24], 1)
            logits = F.linear(self.crossed(x), a) + F.linear(self.deep(x), b, self.head.bias)
        else:
            logits = self.head(torch.cat([self.crossed(x), self.deep(x)], -1))
        logits, aim = wide(logits).squeeze(-1), clicked.to(wide(x).dtype)
        weight = torch.tensor(float(self.choose("clicked", 1.0, 2.0)), dtype=logits.dtype)
        if self.variant == "softplus":
            single = (2 * aim * F.softplus(-logits) + (1 - aim) * F.softplus(logits)).mean()
        else:
            given = logits.sigmoid() if self.variant == "double" else logits
            reduction = "sum" if self.variant == "summed" else "mean"
            single = F.binary_cross_entropy_with_logits(given, aim, pos_weight=weight, reduction=reduction)
        if self.variant == "chosen pairs":
            yes, no = logits[clicked], logits[~clicked]
            return single + 0.5 * F.softplus(no - yes[:, None]).mean()
        gap, both = logits[:, None] - logits, clicked[:, None] & ~clicked
        each = F.softplus(gap if self.variant == "turned" else -gap)
        return single + 0.5 * (each * both).sum() / both.sum()


class Horizons(Program):
    """Each series is freed of its own mean and spread, forecast by patches, and given them back. The loss is of three quantiles."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "spread": ("argument", "structure"), "eps": ("argument",), "given back": ("structure",), "future": ("structure", "input"),
        "batch": ("argument",), "order": ("structure",), "quantiles": ("input",), "crossed": ("structure",), "places": ("structure", "input"),
        "flat": ("structure", "argument"), "scale": ("argument",), "mode": ("argument", "structure"), "first": ("argument", "structure"),
        "pace": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("sliced", "conv", "moments", "pinball", "fused", "einsum", "two halves", "apart")

    def build(self) -> None:
        self.enter, self.places = nn.Linear(8, 32), nn.Parameter(torch.randn(7, 32) * 0.1)
        self.scale, self.move = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))
        with torch.no_grad():
            self.scale.copy_(torch.linspace(0.8, 1.2, 5))
            self.move.copy_(torch.linspace(-0.1, 0.1, 5))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(32, n) for _ in range(2)) for n in (96, 32))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.norms, self.head = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(4)), nn.Linear(224, 18)
        self.register_buffer("quantiles", torch.tensor([0.05, 0.5, 0.95] if self.variant == "quantiles" else [0.1, 0.5, 0.9]))

    def train(self, mode: bool = True) -> Horizons:
        super().train(mode)
        self.norms[2].train(mode and self.variant != "mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.qkv[1].weight

    def groups(self) -> list[list[Any]]:
        self.paced, self.done = [{"params": list(self.parameters())}], 0
        self.pace()
        return [self.paced]

    def pace(self) -> None:
        """The rate doubles with each step up to the fourth."""
        self.paced[0]["lr"] = 5e-4 * 2.0 ** min(3, self.done + (2 if self.variant == "pace" else 0))

    def normed(self, x: torch.Tensor, i: int) -> torch.Tensor:
        """Norms over the batch of x (rows, patches, width)."""
        return self.norms[i](x.mT).mT if self.variant == "conv" else self.norms[i](x.flatten(0, 1)).view_as(x)

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        q, k, v = self.qkv[i](x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.variant == "fused":
            h = F.scaled_dot_product_attention(q, k, v)
        elif self.variant == "einsum":
            share = (torch.einsum("rhqd,rhkd->rhqk", q, k) * 8**-0.5).softmax(-1)
            h = torch.einsum("rhqk,rhkd->rhqd", share, v.to(share.dtype))
        else:
            scores = q @ k.mT * (32**-0.5 if self.variant == "scale" else 8**-0.5)
            h = scores.softmax(-1).to(v.dtype) @ v
        x = self.normed(x + self.outs[i](h.transpose(1, 2).flatten(2)), 2 * i)
        return self.normed(x + self.mlps[i](x), 2 * i + 1)

    def patched(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of seven patches of x (rows, 32); each shares half of it with the next."""
        if self.variant == "conv":
            return F.conv1d(x.unsqueeze(1), self.enter.weight.unsqueeze(1), self.enter.bias, stride=4).mT
        if self.variant == "sliced":
            return self.enter(torch.stack([x[:, i : i + 8] for i in range(0, 25, 4)], 1))
        return self.enter(x.unfold(-1, 8, 4))

    def pinball(self, gap: torch.Tensor) -> torch.Tensor:
        share = wide(self.quantiles)
        if self.variant == "crossed":
            return torch.maximum((share - 1) * gap, share * gap) * torch.where(gap > 0, 1 - share, share) * 2
        if self.variant == "pinball":
            return share * F.relu(gap) + (1 - share) * F.relu(-gap)
        return torch.maximum(share * gap, (share - 1) * gap)

    def forecast(self, x: torch.Tensor) -> torch.Tensor:
        """Quantiles (rows, 6, 3) of x (rows, 32)."""
        h = self.patched(x)
        h = h + (self.places.flip(0) if self.variant == "places" else self.places)
        for i in range(2):
            h = self.layer(h, i)
        if self.variant == "two halves":
            a, b = self.head.weight.split([128, 96], 1)
            return (F.linear(h[:, :4].flatten(1), a) + F.linear(h[:, 4:].flatten(1), b, self.head.bias)).unflatten(-1, (6, 3))
        return self.head(h.mT.flatten(1) if self.variant == "flat" else h.flatten(1)).unflatten(-1, (6, 3))

    def loss(self, step: int) -> torch.Tensor:
        whole = self.normal(step, 6, 38, 5).cumsum(1) + 3 * self.normal(step, 6, 1, 5, stream=1)
        x, aim = whole[:, :32], whole[:, 32:]
        given, over = whole if self.variant == "future" else x, (0, 1) if self.variant == "batch" else 1
        eps = float(self.choose("eps", 1e-1, 1e-5))
        if self.variant == "moments":
            mean = x.sum(1, keepdim=True) / 32
            spread = ((x - mean).square().sum(1, keepdim=True) / 32 + eps).sqrt()
        else:
            mean = x[:, :1] if self.variant == "first" else given.mean(over, keepdim=True)
            spread = (given.var(over, keepdim=True, unbiased=self.variant == "spread") + eps).sqrt()
        mean, spread = mean.detach(), spread.detach()
        x = (x - mean) / spread
        x = (x + self.move) * self.scale if self.variant == "order" else x * self.scale + self.move
        rows = x.mT.flatten(0, 1)
        if self.variant == "apart":
            # Batch norms see all series: rows may come in another order, and go back.
            order = torch.arange(30).view(6, 5).mT.flatten()
            out = self.forecast(rows[order])[order.argsort()]
        else:
            out = self.forecast(rows)
        out = out.view(6, 5, 6, 3).permute(0, 2, 3, 1)
        if self.variant != "given back":
            out = (out - self.move) / (self.scale + 1e-8)
            out = out * spread[:, None] + mean[:, None]
        return self.pinball((wide(aim)[:, :, None] - wide(out)).mT).mean()

    def after_update(self) -> None:
        self.done += 1
        self.pace()


PROGRAMS: dict[str, type[Program]] = {"crosses": Crosses, "horizons": Horizons}
