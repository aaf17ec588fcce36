"""Programs of pictures that are mostly hidden, and of words in a space that widens outwards."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Hidden(Program):
    """Patches of a picture, three in four hidden, are restored by a wide encoder of the rest and a narrow decoder of all."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "places": ("structure", "input"), "order": ("structure", "input", "argument"), "normed": ("structure",), "share": ("structure", "argument", "input"),
        "eps": ("argument",), "scale": ("argument", "structure"), "correction": ("argument",), "token": ("structure", "input"), "unloaded": ("input",),
        "decay": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("indexed", "selected", "attention by hand", "product first", "norm by hand", "patches by a convolution", "queries apart")

    def build(self) -> None:
        eps = float(self.choose("eps", 1e-2, 1e-6))
        self.patches = nn.Conv2d(3, 32, 2, 2)
        self.token = nn.Parameter(0.5 * torch.randn(16))
        self.at, self.at_again = nn.Parameter(0.2 * torch.randn(16, 32)), nn.Parameter(0.2 * torch.randn(16, 16))
        self.norm, self.asked, self.told = nn.LayerNorm(32, eps=eps), nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide_norm, self.up, self.down = nn.LayerNorm(32, eps=eps), nn.Linear(32, 64), nn.Linear(64, 32)
        self.narrow = nn.Linear(32, 16)
        self.decoder = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.out = nn.Linear(16, 12)

    def forgotten(self) -> nn.Parameter:
        return self.up.weight

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.3} if self.variant == "decay" else {}

    def attend(self, h: torch.Tensor) -> torch.Tensor:
        if self.variant == "queries apart":
            parts = [F.linear(h, w, b) for w, b in zip(self.asked.weight.chunk(3), self.asked.bias.chunk(3), strict=True)]
        else:
            parts = self.asked(h).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in parts)
        scale = 0.25 if self.variant == "scale" else 8**-0.5
        if self.variant == "attention by hand":
            found = (scale * q @ k.mT).softmax(-1) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return self.told(found.transpose(1, 2).flatten(2))

    def encode(self, patches: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        h = patches + self.at
        if self.variant == "indexed":
            h = h[torch.arange(8)[:, None], kept]
        else:
            h = h.gather(1, kept[..., None].expand(-1, -1, 32))
        h = h + self.attend(self.norm(h))
        return h + self.down(F.gelu(self.up(self.wide_norm(h))))

    def decode(self, h: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
        h = self.narrow(h)
        token = torch.zeros_like(self.token) if self.variant == "token" else self.token
        h = torch.cat([h, token.expand(8, 12, 16)], 1)
        if self.variant != "order":
            h = h.gather(1, back[..., None].expand(-1, -1, 16))
        return self.out(self.decoder(h if self.variant == "places" else h + self.at_again))

    def loss(self, step: int) -> torch.Tensor:
        x, drawn = self.normal(step, 8, 3, 8, 8), wide(self.normal(step, 8, 16, stream=1))
        order = drawn.argsort(1)
        back, hidden = order.argsort(1), drawn.argsort(1).argsort(1) >= 4
        if self.variant == "product first":
            flat = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(8, 16, 12)
            patches = F.linear(flat, self.patches.weight.flatten(1), self.patches.bias)
        else:
            patches = self.patches(x).flatten(2).mT
        said = wide(self.decode(self.encode(patches, order[:, :4]), back))
        if self.variant == "patches by a convolution":
            wanted = wide(F.unfold(x, 2, stride=2).mT)
        else:
            wanted = wide(x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(8, 16, 12))
        if self.variant == "norm by hand":
            apart = wanted - wanted.mean(-1, keepdim=True)
            wanted = apart / (apart.square().sum(-1, keepdim=True) / 11 + 1e-6).sqrt()
        elif self.variant != "normed":
            spread = wanted.var(-1, keepdim=True, correction=0 if self.variant == "correction" else 1)
            wanted = (wanted - wanted.mean(-1, keepdim=True)) / (spread + 1e-6).sqrt()
        lost = (said - wanted).square().mean(-1)
        if self.variant == "share":
            return lost.mean()
        return lost[hidden].mean() if self.variant == "selected" else (lost * hidden).sum() / hidden.sum()


class Ball(Program):
    """Words in a ball whose distances grow towards its edge; those that belong together are drawn near, with its own metric."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "metric": ("structure", "optimizer"), "curve": ("structure", "argument"), "heat": ("argument",), "double": ("structure", "argument"),
        "shift": ("argument", "structure"), "self": ("structure", "input"), "context": ("structure", "input", "argument"), "unloaded": ("input",),
        "nesterov": ("optimizer", "argument"), "smooth": ("argument", "structure"),
    }  # fmt: skip
    alike = ("logarithm", "by parts", "entropy by hand", "indexed", "metric by a product", "mean of each")

    def build(self) -> None:
        self.words = nn.Embedding(40, 8)
        self.words.weight.data.mul_(0.15)
        self.change = nn.Linear(8, 8, bias=False)

    def forgotten(self) -> nn.Parameter:
        return self.change.weight

    def options(self) -> dict[str, float]:
        return {"nesterov": True} if self.variant == "nesterov" else {}

    def apart(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Distance in the ball, of the last dimension."""
        if self.variant == "by parts":
            gap = u.square().sum(-1) + v.square().sum(-1) - 2 * (u * v).sum(-1)
        else:
            gap = (u - v).square().sum(-1)
        room = (1 - u.square().sum(-1)) * (1 - v.square().sum(-1))
        ratio = 1 + (1.0 if self.variant == "double" else 2.0) * gap / room + (1e-2 if self.variant == "shift" else 1e-5)
        if self.variant == "logarithm":
            return (ratio + (ratio.square() - 1).sqrt()).log()
        return ratio.acosh()

    def inside(self, h: torch.Tensor) -> torch.Tensor:
        size = h.norm(dim=-1, keepdim=True)
        return h * (size if self.variant == "curve" else size.tanh()) / size.clamp(min=1e-6)

    def loss(self, step: int) -> torch.Tensor:
        first, others = self.numbers(step, 20, 12), 20 + self.numbers(step, 20, 12, 6, stream=1)
        if self.variant == "context":
            others = others.roll(1, 0)
        if self.variant == "indexed":
            u, v = self.words.weight[first], self.words.weight[others]
        else:
            u, v = self.words(first), self.words(others)
        u = self.inside(wide(self.change(u)))
        v = wide(v).detach() if self.variant == "self" else wide(v)
        logits = -self.apart(u[:, None], self.inside(v)) / float(self.choose("heat", 0.5, 0.3))
        if self.variant == "entropy by hand":
            return (logits.logsumexp(-1) - logits[:, 0]).mean()
        right = torch.zeros(12, dtype=torch.int64)
        if self.variant == "mean of each":
            return F.cross_entropy(logits, right, reduction="none").sum() / 12
        return F.cross_entropy(logits, right, label_smoothing=0.1 if self.variant == "smooth" else 0.0)

    @torch.no_grad()
    def before_update(self) -> None:
        """Steps are as long as the ball is wide at a word."""
        weight = self.words.weight
        if self.variant == "metric by a product":
            room = 1 - torch.einsum("nd,nd->n", weight, weight)
            weight.grad *= (room * room / 4)[:, None]
        elif self.variant != "metric":
            weight.grad *= (1 - weight.square().sum(-1, keepdim=True)).square() / 4


PROGRAMS = {"hidden": Hidden, "ball": Ball}
