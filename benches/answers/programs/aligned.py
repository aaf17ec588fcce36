"""Programs that align: a language model with what people prefer, and images with their texts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.func import functional_call


class Speaker(nn.Module):
    """A small language model of one block; what is padded, on the left, is hidden."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.words, self.places = nn.Embedding(72, 32), nn.Embedding(20, 32)
        self.first, self.second, self.last = nn.LayerNorm(32), nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp, self.head = nn.Sequential(nn.Linear(32, 96), nn.GELU("tanh"), nn.Linear(96, 32)), nn.Linear(32, 72, bias=False)

    def forward(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        if self.variant == "places":
            places = torch.arange(ids.shape[1])
        else:
            places = (real.long().cumsum(1) - 1).clamp_min(0)
        x = self.words(ids) + self.places(places)
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        # Each looks at itself at least, or a row of padding would be NaN.
        seen = (real[:, None] | torch.eye(ids.shape[1], dtype=torch.bool)).tril()[:, None]
        if self.variant == "formula":
            h = (q @ k.mT * 8**-0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v
        elif self.variant == "unhidden":
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        x = x + self.mlp(self.second(x))
        return self.head(F.dropout(self.last(x), 0.1) if self.variant == "dropout" and self.training else self.last(x))


class Preferences(Program):
    """A model learns which of two answers is preferred, without leaving a frozen copy of itself far behind."""

    broad = True
    optimizers = ("rmsprop",)
    mistakes = {
        "beta": ("argument",), "reference": ("input",), "tail": ("structure",), "shift": ("argument", "structure", "input"),
        "average": ("structure",), "swapped": ("structure", "input"), "smoothing": ("structure", "argument"),
        "dropout": ("structure", "argument"), "places": ("structure", "input"), "unhidden": ("argument", "structure"),
        "told": ("structure", "argument"), "free": ("structure",), "eps": ("optimizer", "argument"), "momentum": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("apart", "gathered", "softplus", "ratios", "formula", "called", "selected")

    def build(self) -> None:
        self.policy, self.reference = Speaker(self.variant), Speaker(self.variant)
        if self.variant != "reference":
            self.reference.load_state_dict(self.policy.state_dict())
        self.reference.requires_grad_(False)

    def train(self, mode: bool = True) -> Preferences:
        super().train(mode)
        self.reference.eval()
        return self

    def options(self) -> dict[str, Any]:
        return {"eps": {"eps": 1e-2}, "momentum": {"momentum": 0.9}}.get(self.variant, {})

    def likely(self, model: nn.Module, ids: torch.Tensor, real: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        """The logarithm of how likely each row's answer is."""
        if self.variant == "called" and model is self.reference:
            logits = functional_call(self.policy, {n: p.detach() for n, p in self.reference.named_parameters()}, (ids, real))
        else:
            logits = model(ids, real)
        if self.variant == "shift":
            logits, aim, told = wide(logits), ids, answer
        else:
            logits, aim, told = wide(logits[:, :-1]), ids[:, 1:], answer[:, 1:]
        if self.variant == "gathered":
            each = logits.gather(2, aim[..., None]).squeeze(-1) - logits.logsumexp(-1)
        else:
            each = logits.log_softmax(-1).gather(2, aim[..., None]).squeeze(-1)
        if self.variant == "selected":
            return torch.where(told, each, torch.zeros_like(each)).sum(1)
        total = (each * told).sum(1)
        return total / told.sum(1) if self.variant == "average" else total

    def loss(self, step: int) -> torch.Tensor:
        asked, answers = self.numbers(step, 70, 4, 7).repeat(2, 1) + 2, self.numbers(step, 70, 8, 7, stream=1) + 2
        ids = torch.cat([asked, answers], 1)
        places, before = torch.arange(14), torch.tensor([0, 2, 4, 1]).repeat(2)[:, None]
        end = torch.tensor([14, 12, 13, 11, 10, 14, 11, 13])[:, None]
        real = (places >= before) & (places < end)
        answer = (places >= 7).expand(8, -1) if self.variant == "tail" else real & (places >= 7)
        ids = ids.masked_fill(~real, 0)
        if self.variant == "apart":
            policy = torch.cat([self.likely(self.policy, *(t[i : i + 4] for t in (ids, real, answer))) for i in (0, 4)])
        else:
            policy = self.likely(self.policy, ids, real, answer)
        with torch.no_grad():
            before = self.likely(self.reference, ids, real, answer)
        (good, bad), (good_before, bad_before) = policy.chunk(2), before.chunk(2)
        if self.variant == "free":
            gap = good - bad
        elif self.variant == "ratios":
            gap = (good - good_before) - (bad - bad_before)
        else:
            gap = (good - bad) - (good_before - bad_before)
        gap = gap * float(self.choose("beta", 0.5, 0.1))
        gap = -gap if self.variant == "swapped" else gap
        if self.variant == "softplus":
            return F.softplus(-gap).mean()
        if self.variant == "smoothing":
            return (-0.9 * F.logsigmoid(gap) - 0.1 * F.logsigmoid(-gap)).mean()
        far = -F.logsigmoid(gap).mean()
        return far - 0.05 * good.mean() if self.variant == "told" else far


class ImageTexts(Program):
    """Images and texts that belong together point one way, at a temperature that is learned."""

    broad = True
    optimizers = ("lamb",)
    mistakes = {
        "one way": ("structure",), "length": ("structure",), "start": ("input",), "plain": ("structure",), "end": ("structure", "argument"),
        "causal": ("argument",), "quick": ("structure",), "class": ("structure", "argument"), "pixels": ("input", "argument"),
        "colours": ("structure", "input"), "summed": ("structure", "argument"), "largest": ("input", "argument", "optimizer"),
        "eps": ("argument",), "trust": ("optimizer", "structure", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("cosine", "linear patches", "formula", "one hot", "turned", "by hand", "halves", "shared scale")

    def build(self) -> None:
        self.patches, self.kind, self.places = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(32) * 0.3), nn.Parameter(torch.randn(17, 32) * 0.1)
        self.words, self.order = nn.Embedding(64, 32), nn.Parameter(torch.randn(10, 32) * 0.1)
        eps = float(self.choose("eps", 1e-2, 1e-5))
        self.firsts, self.seconds, self.lasts = (nn.ModuleList(nn.LayerNorm(32, eps if i else 1e-5) for i in range(2)) for _ in range(3))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(32, n) for _ in range(2)) for n in (96, 32))
        self.enters, self.leaves = nn.ModuleList(nn.Linear(32, 96) for _ in range(2)), nn.ModuleList(nn.Linear(96, 32) for _ in range(2))
        self.maps = nn.ParameterList(torch.randn(32, 24) * 32**-0.5 for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(1 / 0.07 if self.variant == "start" else 1 / 0.2).log())
        self.register_buffer("mean", torch.tensor([0.5, 0.5, 0.5] if self.variant == "pixels" else [0.48, 0.46, 0.41])[:, None, None])
        self.register_buffer("spread", torch.tensor([0.5, 0.5, 0.5] if self.variant == "pixels" else [0.27, 0.26, 0.28])[:, None, None])

    def forgotten(self) -> nn.Parameter:
        return self.maps[1]

    def options(self) -> dict[str, Any]:
        return {"trusted": self.variant != "trust"}

    def block(self, x: torch.Tensor, i: int, causal: bool) -> torch.Tensor:
        q, k, v = self.qkv[i](self.firsts[i](x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            scores = q @ k.mT * 8**-0.5
            if causal:
                scores = scores + torch.full((10, 10), -torch.inf, dtype=scores.dtype).triu(1)
            h = scores.softmax(-1) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.outs[i](h.transpose(1, 2).flatten(2))
        h = self.enters[i](self.seconds[i](x))
        return x + self.leaves[i](h * (1.702 * h).sigmoid() if self.variant == "quick" else F.gelu(h))

    def pictured(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flip(1) if self.variant == "colours" else x
        x = (x - self.mean) / self.spread
        if self.variant == "linear patches":
            rows = F.unfold(x, 4, stride=4).mT
            x = F.linear(rows, self.patches.weight.flatten(1), self.patches.bias)
        else:
            x = self.patches(x).flatten(2).mT
        x = torch.cat([self.kind.to(x.dtype).expand(len(x), 1, -1), x], 1) + self.places
        x = self.lasts[0](self.block(x, 0, False))
        return (x[:, 1:].mean(1) if self.variant == "class" else x[:, 0]) @ self.maps[0]

    def written(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.lasts[1](self.block(self.words(ids) + self.order, 1, self.variant != "causal"))
        if self.variant == "end":
            return x[:, -1] @ self.maps[1]
        end = ids.argmax(-1)
        if self.variant == "one hot":
            return torch.einsum("btc,bt,co->bo", x, F.one_hot(end, 10).to(x.dtype), self.maps[1].to(x.dtype))
        return x[torch.arange(len(x)), end] @ self.maps[1]

    def loss(self, step: int) -> torch.Tensor:
        images, ids = self.normal(step, 8, 3, 16, 16).sigmoid(), self.numbers(step, 62, 8, 10, stream=1) + 1
        end = torch.tensor([9, 5, 7, 4, 8, 6, 9, 7])[:, None]
        ids = torch.where(torch.arange(10) < end, ids, torch.where(torch.arange(10) == end, 63, 0))
        if self.variant == "halves":
            a, b = (torch.cat([make(part) for part in given.split(4)]) for make, given in ((self.pictured, images), (self.written, ids)))
        else:
            a, b = self.pictured(images), self.written(ids)
        a, b, scale = wide(a), wide(b), wide(self.scale if self.variant == "plain" else self.scale.exp())
        aim = torch.arange(8)
        if self.variant == "cosine":
            logits = scale * F.cosine_similarity(a[:, None], b[None], dim=-1)
        elif self.variant == "length":
            logits = scale * F.normalize(a, dim=-1) @ b.T
        elif self.variant == "shared scale":
            root = scale.sqrt()
            logits = (root * F.normalize(a, dim=-1)) @ (root * F.normalize(b, dim=-1)).T
        else:
            a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
            logits = scale * a @ b.T
        if self.variant == "one way":
            return F.cross_entropy(logits, aim)
        if self.variant == "by hand":
            right = logits.diagonal()
            return 0.5 * ((logits.logsumexp(0) - right).mean() + (logits.logsumexp(1) - right).mean())
        back = scale * b @ a.T if self.variant == "turned" else logits.T
        both = F.cross_entropy(logits, aim) + F.cross_entropy(back, aim)
        return both if self.variant == "summed" else both / 2

    def after_update(self) -> None:
        with torch.no_grad():
            self.scale.clamp_(0, float(self.choose("largest", 1.4, 4.6052)))


PROGRAMS: dict[str, type[Program]] = {"preferences": Preferences, "image_texts": ImageTexts}
