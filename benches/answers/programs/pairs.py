"""Programs of pairs: points of two images that are matched by transport, and images that are told from a queue of others."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.func import functional_call


class Matching(Program):
    """Points look at those of their own image and of the other. What is alike is moved to one another, or into a bin."""

    broad = True
    mistakes = {
        "few rounds": ("structure",), "no bin": ("structure",), "bin": ("input",), "masses": ("argument", "input", "structure"),
        "columns first": ("structure", "argument"), "pixels": ("structure",), "own": ("structure", "input"), "temperature": ("argument",),
        "unscaled": ("argument", "structure"), "joined": ("structure", "input"), "bins free": ("structure", "input", "argument"),
        "heads": ("structure", "argument"), "warmup": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("products", "padded", "einsum", "stacked", "formula", "split join", "linear conv")

    def build(self) -> None:
        self.enter = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 1))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(24, n) for _ in range(2)) for n in (72, 24))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(48, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, 24)) for _ in range(2))
        self.last, self.bin = nn.Linear(24, 24), nn.Parameter(torch.tensor(0.1 if self.variant == "bin" else 1.0))

    def forgotten(self) -> nn.Parameter:
        return self.mlps[1][3].weight

    def groups(self) -> list[list[Any]]:
        self.paced, self.done = [{"params": list(self.parameters())}], 0
        self.pace()
        return [self.paced]

    def options(self) -> dict[str, Any]:
        return {"amsgrad": True}

    def pace(self) -> None:
        self.paced[0]["lr"] = 3e-3 * min(1.0, (self.done + (1.5 if self.variant == "warmup" else 1)) / 5)

    def attend(self, i: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x looks at y, each (pair, point, width)."""
        a, b, c = zip(self.qkv[i].weight.chunk(3), self.qkv[i].bias.chunk(3), strict=True)
        q, k, v = F.linear(x, *a), F.linear(y, *b), F.linear(y, *c)
        if self.variant == "heads":
            q, k, v = (t.unflatten(-1, (8, 3)).permute(0, 3, 1, 2) for t in (q, k, v))
        else:
            q, k, v = (t.unflatten(-1, (3, 8)).transpose(1, 2) for t in (q, k, v))
        if self.variant == "formula":
            h = (q @ k.mT * 8**-0.5).softmax(-1).to(v.dtype) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v, scale=1.0 if self.variant == "unscaled" else None)
        h = self.outs[i](h.transpose(1, 2).flatten(2))
        first = self.mlps[i][0]
        if self.variant == "split join":
            left, right = first.weight.chunk(2, 1)
            return x + self.mlps[i][1:](F.linear(x, left) + F.linear(h, right, first.bias))
        return x + self.mlps[i](torch.cat([h, x] if self.variant == "joined" else [x, h], -1))

    def described(self, said: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        seen = places if self.variant == "pixels" else (places - 32) / 45
        rows = torch.cat([seen, seen.square().sum(-1, keepdim=True)], -1)
        if self.variant == "linear conv":
            first, norm, act, last = self.enter
            h = act(norm(F.linear(rows, first.weight.squeeze(-1), first.bias).mT))
            return said + F.linear(h.mT, last.weight.squeeze(-1), last.bias)
        return said + self.enter(rows.mT).mT

    def transported(self, scores: torch.Tensor) -> torch.Tensor:
        """Logarithms of how much of each row goes to each column, of 10 and 12 points and the bins."""
        kind, rows, columns = scores.dtype, 10, 12
        one = torch.zeros(1, dtype=kind)
        by = float(rows + columns)
        if self.variant == "no bin":
            mu, nu = (torch.full((n,), -math.log(n), dtype=kind) for n in (rows, columns))
        else:
            if self.variant == "padded":
                scores = torch.where(F.pad(torch.ones(rows, columns), (0, 1, 0, 1)) > 0, F.pad(scores, (0, 1, 0, 1)), wide(self.bin))
            else:
                fill = wide(self.bin)
                scores = torch.cat([scores, fill.expand(len(scores), rows, 1)], 2)
                scores = torch.cat([scores, fill.expand(len(scores), 1, columns + 1)], 1)
            free = (1, 1) if self.variant == "masses" else (columns, rows)
            mu = torch.cat([one.expand(rows), one + math.log(free[0])]) - math.log(by)
            nu = torch.cat([one.expand(columns), one + math.log(free[1])]) - math.log(by)
        count = 3 if self.variant == "few rounds" else 6
        if self.variant == "products":
            kernel = scores.exp()
            u, v = torch.ones_like(kernel[:, :, 0]), torch.ones_like(kernel[:, 0])
            for _ in range(count):
                u = mu.exp() / (kernel @ v[..., None]).squeeze(-1)
                v = nu.exp() / (u[:, None] @ kernel).squeeze(1)
            return (u[..., None] * kernel * v[:, None]).log() + math.log(by)
        u, v = torch.zeros_like(scores[:, :, 0]), torch.zeros_like(scores[:, 0])
        for _ in range(count):
            if self.variant == "columns first":
                v = nu - (scores + u[:, :, None]).logsumexp(1)
                u = mu - (scores + v[:, None]).logsumexp(2)
            else:
                u = mu - (scores + v[:, None]).logsumexp(2)
                v = nu - (scores + u[:, :, None]).logsumexp(1)
        return scores + u[:, :, None] + v[:, None] + math.log(by)

    def loss(self, step: int) -> torch.Tensor:
        said = self.normal(step, 3, 12, 24)
        places = self.normal(step, 3, 12, 2, stream=1) * 16 + 32
        order = torch.tensor([4, 0, 7, 2, 9, 1, 3])
        mine = torch.cat([said[:, order] + 0.2 * self.normal(step, 3, 7, 24, stream=2), self.normal(step, 3, 3, 24, stream=3)], 1)
        there = torch.cat([places[:, order] + 4.0, self.normal(step, 3, 3, 2, stream=4) * 16 + 32], 1)
        x, y = self.described(mine, there), self.described(said, places)
        x, y = self.attend(0, x, x), self.attend(0, y, y)
        x, y = (self.attend(1, x, x), self.attend(1, y, y)) if self.variant == "own" else (self.attend(1, x, y), self.attend(1, y, x))
        a, b = wide(self.last(x)), wide(self.last(y))
        scores = torch.einsum("bnd,bmd->bnm", a, b) if self.variant == "einsum" else a @ b.mT
        found = self.transported(scores * float(self.choose("temperature", 1 / 24, 24**-0.5)))
        right = found[:, torch.arange(7), order].flatten()
        if self.variant in ("no bin", "bins free"):
            return -right.mean()
        left = found[:, 7:10, 12].flatten()
        over = found[:, 10, torch.tensor([5, 6, 8, 10, 11])].flatten()
        if self.variant == "stacked":
            return -torch.cat([right, left, over]).sum() / 45
        return -(right.sum() + left.sum() + over.sum()) / 45

    def after_update(self) -> None:
        self.done += 1
        self.pace()


class Queue(Program):
    """An image is told from those in a queue. Keys are of a network that follows, and that sees each batch in another order."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "before": ("structure", "input"), "temperature": ("argument",), "follows": ("argument", "input", "optimizer"),
        "raw keys": ("structure",), "still": ("structure", "input"), "mode": ("argument", "structure"),
        "same place": ("argument", "input"), "other start": ("input",), "aim": ("argument", "input", "structure"),
        "own view": ("structure", "input"), "dim": ("argument",), "dampening": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("by hand", "einsum", "lerp", "foreach", "functional", "rolled", "each")

    def build(self) -> None:
        self.queries, self.keys = self.network(), self.network()
        if self.variant != "other start":
            self.keys.load_state_dict(self.queries.state_dict())
            # They are a little behind, as they are in the midst of a training.
            with torch.no_grad():
                for p in self.keys.parameters():
                    p.mul_(0.9)
        self.keys.requires_grad_(False)
        with torch.no_grad():
            before = torch.randn(24, 3, 2, 2, generator=torch.Generator().manual_seed(5))
            start = self.keys(before.repeat_interleave(4, 2).repeat_interleave(4, 3))
        self.register_buffer("queue", F.normalize(start, dim=1))
        self.at = 0

    def train(self, mode: bool = True) -> Queue:
        super().train(mode)
        self.keys[1].train(mode and self.variant != "mode")
        return self

    def network(self) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16),
        )  # fmt: skip

    def forgotten(self) -> nn.Parameter:
        return self.queries[7].weight

    def options(self) -> dict[str, Any]:
        return {"dampening": 0.9} if self.variant == "dampening" else {}

    def unit(self, x: torch.Tensor, dim: int = 1) -> torch.Tensor:
        return x / x.norm(dim=dim, keepdim=True).clamp_min(1e-12) if self.variant == "by hand" else F.normalize(x, dim=dim)

    def followed(self) -> None:
        keep, mine, theirs = float(self.choose("follows", 0.5, 0.9)), list(self.queries.parameters()), list(self.keys.parameters())
        with torch.no_grad():
            if self.variant == "foreach":
                torch._foreach_mul_(theirs, keep)
                torch._foreach_add_(theirs, [p.detach() for p in mine], alpha=1 - keep)
                return
            for ours, other in zip(mine, theirs, strict=True):
                if self.variant == "lerp":
                    other.lerp_(ours, 1 - keep)
                else:
                    other.mul_(keep).add_(ours, alpha=1 - keep)

    def told(self, x: torch.Tensor, step: int) -> torch.Tensor:
        order = torch.from_numpy(numpy.random.default_rng(9000 + step).permutation(8))
        x = x[order]
        if self.variant == "functional":
            found = functional_call(self.keys, dict(self.keys.named_parameters()), (x,))
        else:
            found = self.keys(x)
        found = found if self.variant == "raw keys" else self.unit(wide(found))
        return wide(found[order.argsort()])

    def kept(self, keys: torch.Tensor) -> None:
        with torch.no_grad():
            if self.variant == "rolled":
                self.queue.copy_(torch.cat([self.queue[: self.at], keys.to(self.queue.dtype), self.queue[self.at + 8 :]]))
            else:
                self.queue[self.at : self.at + 8] = keys.to(self.queue.dtype)
        self.at = 0 if self.variant == "same place" else (self.at + 8) % 24

    def loss(self, step: int) -> torch.Tensor:
        base = self.normal(step, 8, 3, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
        one, two = (base + 0.3 * self.normal(step, 8, 3, 8, 8, stream=i) for i in (1, 2))
        q = self.unit(wide(self.queries(one)), 0 if self.variant == "dim" else 1)
        with torch.no_grad():
            if self.variant != "still":
                self.followed()
            k = self.told(one if self.variant == "own view" else two, step)
        if self.variant == "before":
            self.kept(k)
        queue = wide(self.queue).clone()
        if self.variant == "einsum":
            right, wrong = torch.einsum("nd,nd->n", q, k)[:, None], torch.einsum("nd,kd->nk", q, queue)
        else:
            right, wrong = (q * k).sum(1, keepdim=True), q @ queue.mT
        logits = torch.cat([right, wrong], 1) / float(self.choose("temperature", 0.5, 0.2))
        if self.variant != "before":
            self.kept(k)
        if self.variant == "each":
            return (logits.logsumexp(1) - logits[:, 0]).mean()
        aim = torch.arange(8) if self.variant == "aim" else torch.zeros(8, dtype=torch.long)
        return F.cross_entropy(logits, aim)


PROGRAMS: dict[str, type[Program]] = {"matching": Matching, "queue": Queue}
