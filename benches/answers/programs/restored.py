"""Programs that restore: words under a mask, pictures of more points, and the next words by attention of few latent numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm, wide
from torch import nn


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
    """Attention of plain functions."""
    fit = wide(q @ k.mT) * scale
    if causal:
        fit = fit.masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), float("-inf"))
    return fit.softmax(-1).to(v.dtype) @ v


class Unmasker(Program):
    """Words restored from under a mask, weighted by how many were hidden."""

    broad = True
    optimizers = ("lion",)
    mistakes = {
        "weight": ("structure", "argument"), "causal": ("argument", "structure"), "everywhere": ("structure", "argument"), "mask word": ("argument", "input"),
        "time": ("structure", "input"), "eps": ("argument",), "tied": ("structure", "input"), "label": ("argument", "input", "structure"),
        "scale": ("argument", "structure"), "unloaded": ("input",), "keep": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("by hand", "gathered", "split maps", "one hot", "chosen", "attention by hand")

    def build(self) -> None:
        self.words = nn.Embedding(41, 32)
        self.time = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32))
        eps = float(self.choose("eps", 1e-3, 1e-5))
        self.norms = nn.ModuleList(nn.LayerNorm(32, eps=eps) for _ in range(5))
        self.maps = nn.ModuleList(nn.Linear(32, 96, bias=False) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.head = nn.Linear(32, 41, bias=False)
        with torch.no_grad():
            self.words.weight.mul_(0.3)

    def forgotten(self) -> nn.Parameter:
        return self.maps[1].weight

    def options(self) -> dict[str, float]:
        return {"keep": 0.99} if self.variant == "keep" else {}

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        h = self.norms[2 * i](x)
        if self.variant == "split maps":
            q, k, v = (F.linear(h, weight) for weight in self.maps[i].weight.chunk(3))
        else:
            q, k, v = self.maps[i](h).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in (q, k, v))
        causal, scale = self.variant == "causal", 0.25 if self.variant == "scale" else 1 / math.sqrt(8)
        if self.variant == "attention by hand":
            read = attended(q, k, v, causal, scale)
        else:
            read = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        x = x + self.outs[i](read.transpose(1, 2).flatten(2))
        return x + self.mlps[i](self.norms[2 * i + 1](x))

    def loss(self, step: int) -> torch.Tensor:
        words = self.numbers(step, 40, 6, 16)
        time = (self.numbers(step, 80, 6, 1, stream=1) + 10) / 100
        hidden = self.numbers(step, 100, 6, 16, stream=2) < 100 * time
        shown = torch.where(hidden, torch.full_like(words, int(self.choose("mask word", 0, 40))), words)
        x = F.one_hot(shown, 41).to(self.words.weight.dtype) @ self.words.weight if self.variant == "one hot" else self.words(shown)
        if self.variant != "time":
            x = x + self.time(time.to(x.dtype))[:, None]
        for i in range(2):
            x = self.layer(x, i)
        x = self.norms[4](x)
        logits = wide(F.linear(x, self.words.weight) if self.variant == "tied" else self.head(x))
        wanted = words.roll(1, 1) if self.variant == "label" else words
        if self.variant == "by hand":
            losses = logits.logsumexp(-1) - logits.gather(-1, wanted[..., None]).squeeze(-1)
        else:
            losses = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(6, 16)
        losses = losses if self.variant == "weight" else losses / wide(time.to(logits.dtype))
        if self.variant == "everywhere":
            return losses.mean()
        if self.variant == "gathered":
            return losses.masked_select(hidden).sum() / 96
        if self.variant == "chosen":
            return losses[hidden].sum() / 96
        return (losses * hidden).sum() / 96


class Sharpener(Program):
    """Pictures with twice as many points: dense blocks, and a loss of points and of edges."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "residual": ("structure", "argument"), "slope": ("argument",), "nearest": ("argument", "structure"), "edges": ("structure", "argument"), "eps": ("argument",),
        "order": ("structure", "argument"), "padding": ("argument", "structure"), "skip": ("structure", "input"), "range": ("argument", "structure", "input"),
        "unloaded": ("input",), "clipped": ("structure", "argument"), "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("shuffled by hand", "added late", "transposed", "edges by sums", "root by hand", "split weight")

    def build(self) -> None:
        mode = "reflect" if self.variant == "padding" else "zeros"
        self.enter = nn.Conv2d(3, 16, 3, padding=1, padding_mode=mode)
        self.dense = nn.ModuleList(nn.Conv2d(16 + 8 * i, 8, 3, padding=1) for i in range(3))
        self.merge = nn.Conv2d(40, 16, 1)
        self.up = nn.Conv2d(16, 12, 3, padding=1)

    def forgotten(self) -> nn.Parameter:
        return self.merge.weight

    def options(self) -> dict[str, object]:
        return {"betas": (0.9, 0.95)} if self.variant == "betas" else {}

    def larger(self, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "order":
            return x.view(4, 2, 2, 3, 8, 8).permute(0, 3, 4, 1, 5, 2).reshape(4, 3, 16, 16)
        if self.variant == "shuffled by hand":
            return x.view(4, 3, 2, 2, 8, 8).permute(0, 1, 4, 2, 5, 3).reshape(4, 3, 16, 16)
        if self.variant == "transposed":
            kernel = torch.eye(12, dtype=x.dtype).view(12, 3, 2, 2)
            return F.conv_transpose2d(x, kernel, stride=2)
        return F.pixel_shuffle(x, 2)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 4, 3, 8, 8)
        if self.variant == "range":
            x = x * 0.5 + 0.5
        wanted = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False) + 0.2 * self.normal(step, 4, 3, 16, 16, stream=1)
        first = self.enter(x)
        kept = [first]
        for i, conv in enumerate(self.dense):
            if self.variant == "split weight" and i == 2:
                parts = conv.weight.split([16, 8, 8], 1)
                h = sum(F.conv2d(part, weight, padding=1) for part, weight in zip(kept, parts, strict=True)) + conv.bias[:, None, None]
            else:
                h = conv(torch.cat(kept, 1))
            kept.append(F.leaky_relu(h, float(self.choose("slope", 0.01, 0.2))))
        h = self.merge(torch.cat(kept, 1))
        h = first + float(self.choose("residual", 1.0, 0.2)) * h
        made = self.larger(self.up(h))
        if self.variant == "added late":
            base = F.interpolate(x, size=(16, 16), mode="bilinear", align_corners=False)
        else:
            base = F.interpolate(x, scale_factor=2, mode="nearest") if self.variant == "nearest" else F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        made = made if self.variant == "skip" else made + base
        if self.variant == "clipped":
            made = made.clamp(-1, 1)
        off = wide(made - wanted)
        eps = float(self.choose("eps", 1e-2, 1e-3))
        points = (off.square() + eps**2).pow(0.5) if self.variant == "root by hand" else (off.square() + eps**2).sqrt()
        if self.variant == "edges by sums":
            edges = (off[..., 1:] - off[..., :-1]).abs().sum() / 2880 + (off[..., 1:, :] - off[..., :-1, :]).abs().sum() / 2880
        else:
            edges = off.diff(dim=-1).abs().mean() + off.diff(dim=-2).abs().mean()
        return points.mean() + (1.0 if self.variant == "edges" else 0.1) * edges


class Latent(Program):
    """A language model whose keys and values come of few numbers, with one key of places for all heads, and a head for the word after next."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "scale": ("argument", "structure"), "base": ("input", "structure", "argument"), "turned": ("structure", "argument"), "unnormed": ("structure",),
        "after": ("structure", "argument", "input"), "share": ("structure", "argument"), "gate": ("structure", "input"), "causal": ("argument", "structure"),
        "uncapped": ("structure", "argument"), "unloaded": ("input",), "decay": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("absorbed", "by hand", "cat late", "complex", "norm", "merged gate")

    def build(self) -> None:
        self.words = nn.Embedding(50, 32)
        self.query, self.down, self.up = nn.Linear(32, 4 * 12, bias=False), nn.Linear(32, 16 + 4, bias=False), nn.Linear(16, 4 * 16, bias=False)
        self.out = nn.Linear(32, 32, bias=False)
        self.norms = nn.ModuleList(RootNorm(size) for size in (32, 16, 32, 32))
        self.gates, self.ups, self.downs = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False), nn.Linear(48, 32, bias=False)
        self.next = nn.Linear(64, 32, bias=False)
        self.head = nn.Linear(32, 50, bias=False)
        with torch.no_grad():
            self.words.weight.mul_(0.5)

    def forgotten(self) -> nn.Parameter:
        return self.up.weight

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.3} if self.variant == "decay" else {}

    def placed(self, x: torch.Tensor) -> torch.Tensor:
        """Pairs of neighbours, turned by their place."""
        base = float(self.choose("base", 500.0, 10000.0))
        angle = torch.arange(14.0, dtype=wide(x).dtype)[:, None] * base ** (-torch.arange(2.0, dtype=wide(x).dtype) / 2)
        if self.variant == "complex":
            pairs = torch.view_as_complex(wide(x).unflatten(-1, (2, 2)).contiguous())
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(x.dtype)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = (x[..., :2], x[..., 2:]) if self.variant == "turned" else (x[..., 0::2], x[..., 1::2])
        c, d = a * cos - b * sin, a * sin + b * cos
        return torch.cat([c, d], -1) if self.variant == "turned" else torch.stack([c, d], -1).flatten(-2)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        query = self.query(x).unflatten(-1, (4, 12)).transpose(1, 2)
        plain, turned = query.split([8, 4], -1)
        few, place = self.down(x).split([16, 4], -1)
        few = few if self.variant == "unnormed" else self.norms[1](few)
        turned, place = self.placed(turned), self.placed(place)
        scale = 1 / math.sqrt(8 if self.variant == "scale" else 12)
        mask = torch.ones(14, 14).triu(1).bool()
        if self.variant == "absorbed":
            keys, values = self.up.weight.view(4, 16, 16).split([8, 8], 1)
            fit = (plain @ keys) @ few[:, None].mT + turned @ place[:, None].mT
            chances = (wide(fit) * scale).masked_fill(mask, float("-inf")).softmax(-1).to(x.dtype)
            return self.out(((chances @ few[:, None]) @ values.mT).transpose(1, 2).flatten(2))
        key, value = self.up(few).unflatten(-1, (4, 16)).transpose(1, 2).split([8, 8], -1)
        shared = place[:, None].expand(-1, 4, -1, -1)
        if self.variant == "cat late":
            fit = plain @ key.mT + turned @ shared.mT
            read = (wide(fit) * scale).masked_fill(mask, float("-inf")).softmax(-1).to(x.dtype) @ value
        else:
            query, key = torch.cat([plain, turned], -1), torch.cat([key, shared], -1)
            if self.variant == "by hand":
                read = attended(query, key, value, True, scale)
            else:
                read = F.scaled_dot_product_attention(query, key, value, is_causal=self.variant != "causal", scale=scale)
        return self.out(read.transpose(1, 2).flatten(2))

    def normed(self, x: torch.Tensor, i: int) -> torch.Tensor:
        if self.variant == "norm":
            return F.rms_norm(x, (x.shape[-1],), self.norms[i].weight, 1e-6)
        return self.norms[i](x)

    def loss(self, step: int) -> torch.Tensor:
        words = self.numbers(step, 50, 4, 16)
        x = self.words(words[:, :14])
        x = x + self.attention(self.normed(x, 0))
        h = self.normed(x, 2)
        if self.variant == "merged gate":
            gate, up = F.linear(h, torch.cat([self.gates.weight, self.ups.weight])).chunk(2, -1)
        else:
            gate, up = self.gates(h), self.ups(h)
        gate, up = (up, gate) if self.variant == "gate" else (gate, up)
        x = x + self.downs(F.silu(gate) * up)
        logits = wide(self.head(self.normed(x, 3)))
        follow = self.words(words[:, 2:16] if self.variant == "after" else words[:, 1:15])
        later = wide(self.head(self.normed(self.next(torch.cat([x, follow], -1)), 3)))
        if self.variant != "uncapped":
            logits, later = (30 * (each / 30).tanh() for each in (logits, later))
        first = F.cross_entropy(logits.flatten(0, 1), words[:, 1:15].flatten())
        second = F.cross_entropy(later.flatten(0, 1), words[:, 2:16].flatten())
        return first + (1.0 if self.variant == "share" else 0.3) * second


PROGRAMS: dict[str, type[Program]] = {"unmasker": Unmasker, "sharpener": Sharpener, "latent": Latent}
