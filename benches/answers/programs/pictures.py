"""More programs of images: windows that move, trained where the loss is sharp, and a map of classes with two losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class WindowBlock(nn.Module):
    """Attention inside of windows of 4 by 4 places, which may lie half a window further, and a network behind it."""

    def __init__(self, program: Program, by: int) -> None:
        super().__init__()
        self.variant, self.by = program.variant, by
        self.norm, self.late = nn.LayerNorm(24), nn.LayerNorm(24)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.table = nn.Parameter(torch.randn(49, 2) * 0.5)
        start = float(program.choose("layer scale", 1.0, 0.1))
        self.scales = nn.ParameterList(torch.full((24,), start) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
        place = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        gap = place[:, :, None] - place[:, None] + 3
        self.register_buffer("index", gap[1] * 7 + gap[0] if self.variant == "transposed" else gap[0] * 7 + gap[1])

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        """Windows of x (batch, 8, 8, width), each a row of 16 places."""
        if self.variant == "unfolded":
            return x.unfold(1, 4, 4).unfold(2, 4, 4).permute(0, 1, 2, 4, 5, 3).reshape(-1, 16, x.shape[-1])
        x = x.view(x.shape[0], 2, 4, 2, 4, -1)
        return (x if self.variant == "partition" else x.transpose(2, 3)).reshape(-1, 16, x.shape[-1])

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, 2, 4, 4, x.shape[-1]).transpose(2, 3).reshape(-1, 8, 8, x.shape[-1])

    def moved(self, x: torch.Tensor, by: int) -> torch.Tensor:
        if self.variant != "sliced":
            return x.roll((by, by), (1, 2))
        x = torch.cat([x[:, -by:], x[:, :-by]], 1)
        return torch.cat([x[:, :, -by:], x[:, :, :-by]], 2)

    def hidden(self) -> torch.Tensor:
        """Places of a window that do not lie side by side in the image."""
        part = torch.zeros(1, 8, 8, 1, dtype=torch.long)
        for i, row in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
            for j, column in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                part[:, row, column] = 3 * i + j
        part = self.cut(part).squeeze(-1)
        return part[:, :, None] != part[:, None]

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 12)).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.flatten()].view(16, 16, 2).permute(2, 0, 1)
        hidden = self.hidden().repeat(len(x) // 4, 1, 1)[:, None] if self.by and self.variant != "unmasked" else None
        if self.variant == "fused":
            bias = bias.to(q.dtype).expand(len(x), -1, -1, -1)
            bias = bias if hidden is None else bias.masked_fill(hidden, -torch.inf)
            return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))
        scores = torch.einsum("whqd,whkd->whqk", q, k) if self.variant == "einsum" else q @ k.mT
        scores = scores * (1.0 if self.variant == "unscaled" else 12**-0.5) + bias
        if hidden is not None and self.variant == "filled":
            scores = scores.masked_fill(hidden, -torch.inf)
        elif hidden is not None:
            scores = scores + torch.where(hidden, -100.0, 0.0).to(scores.dtype)
        share = scores.softmax(-1)
        return self.out((share @ v.to(share.dtype)).transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        h = self.cut(self.moved(h, -self.by) if self.by else h)
        h = self.joined(self.attend(h))
        h = self.moved(h, -self.by if self.variant == "back" else self.by) if self.by else h
        if self.variant == "addcmul":
            x = torch.addcmul(x, self.scales[0], h.to(x.dtype))
            return torch.addcmul(x, self.scales[1], self.mlp(self.late(x)).to(x.dtype))
        x = x + self.scales[0] * h
        return x + self.scales[1] * self.mlp(self.late(x))


class Windows(Program):
    """Two blocks and a merge of patches. A second pass, uphill by `rho`, gives the gradient of the step."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "unmasked": ("structure",), "transposed": ("input",), "back": ("argument",), "partition": ("structure",),
        "layer scale": ("input",), "merge": ("argument",), "unscaled": ("argument",), "rho": ("argument", "input"),
        "not restored": ("structure", "optimizer", "input"), "kept": ("gradient", "structure", "optimizer"), "unloaded": ("input",),
        "nesterov": ("optimizer", "argument", "structure"),
    }  # fmt: skip
    alike = ("unfolded", "sliced", "fused", "einsum", "filled", "addcmul", "reshaped", "linear patches")

    def build(self) -> None:
        self.patches, self.blocks = nn.Conv2d(3, 24, 2, 2), nn.ModuleList(WindowBlock(self, by) for by in (0, 2))
        self.merge, self.reduce = nn.LayerNorm(96), nn.Linear(96, 48, bias=False)
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, 10)

    def forgotten(self) -> nn.Parameter:
        return self.blocks[1].table

    def options(self) -> dict[str, Any]:
        return {"nesterov": True} if self.variant == "nesterov" else {}

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 4, 3, 16, 16)
        if self.variant == "linear patches":
            rows = x.unflatten(3, (8, 2)).unflatten(2, (8, 2)).permute(0, 2, 4, 1, 3, 5).flatten(3)
            x = F.linear(rows, self.patches.weight.flatten(1), self.patches.bias)
        else:
            x = self.patches(x).permute(0, 2, 3, 1).contiguous()
        for block in self.blocks:
            x = block(x)
        if self.variant == "reshaped":
            x = x.view(-1, 4, 2, 4, 2, 24).permute(0, 1, 3, 4, 2, 5).flatten(3)
        elif self.variant == "merge":
            x = torch.cat([x[:, ::2, ::2], x[:, ::2, 1::2], x[:, 1::2, ::2], x[:, 1::2, 1::2]], -1)
        else:
            x = torch.cat([x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]], -1)
        x = self.norm(self.reduce(self.merge(x)).flatten(1, 2)).mean(1)
        return F.cross_entropy(wide(self.head(x)), self.numbers(step, 10, 4))

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        yield self.loss(step), None
        with torch.no_grad():
            size = torch.stack([wide(p.grad).norm() for p in self.parameters()]).norm()
            pace = float(self.choose("rho", 0.5, 0.05)) / (size + 1e-12)
            self.uphill = [(p, (p.grad * pace).to(p.dtype)) for p in self.parameters()]
            for p, way in self.uphill:
                p.add_(way)
                if self.variant != "kept":
                    p.grad = None
        yield self.loss(step), 0

    def before_update(self) -> None:
        if self.variant != "not restored":
            with torch.no_grad():
                for p, way in self.uphill:
                    p.sub_(way)


class Segmentation(Program):
    """A map of classes by a net that goes down and up again, with an overlap loss beside the entropy."""

    broad = True
    optimizers = ("nadam",)
    mistakes = {
        "smooth": ("argument",), "dims": ("argument",), "skip": ("structure", "argument", "input"), "groups": ("argument",),
        "aligned": ("argument",), "channels": ("argument",), "background": ("argument", "structure"), "weights": ("input",),
        "dropout": ("argument", "structure"), "pace": ("optimizer", "argument"), "overlap": ("argument",), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("linear head", "einsum", "norm by hand", "gathered", "halves", "foreach", "channels last", "split weight")

    def build(self) -> None:
        self.down = nn.ModuleList(self.part(a, b) for a, b in ((3, 16), (16, 32), (32, 32)))
        self.up = nn.ModuleList(self.part(a, b) for a, b in ((64, 32), (48, 16)))
        self.head = nn.Conv2d(16, 4, 1)
        self.register_buffer("weights", torch.ones(4) if self.variant == "weights" else torch.tensor([0.3, 1.0, 2.0, 1.5]))

    def part(self, a: int, b: int) -> nn.Sequential:
        groups = int(self.choose("groups", 8, 4)) if a == 64 else 4
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(groups, b), nn.SiLU(inplace=True))

    def forgotten(self) -> nn.Parameter:
        return self.up[1][0].weight

    def options(self) -> dict[str, Any]:
        if self.variant == "pace":
            return {"betas": (0.95, 0.999)}
        return {"foreach": True} if self.variant == "foreach" else {}

    def run(self, part: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "norm by hand":
            h = part[0](x).unflatten(1, (4, -1))
            h = h - h.mean((2, 3, 4), keepdim=True)
            h = (h * torch.rsqrt(h.square().mean((2, 3, 4), keepdim=True) + 1e-5)).flatten(1, 2)
            return F.silu(h * part[1].weight[:, None, None] + part[1].bias[:, None, None])
        return part(x)

    def joined(self, part: nn.Sequential, low: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        low = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=self.variant == "aligned")
        if self.variant == "split weight":
            a, b = part[0].weight.split([low.shape[1], skip.shape[1]], 1)
            return part[2](part[1](F.conv2d(low, a, padding=1) + F.conv2d(skip, b, padding=1)))
        both = torch.cat([skip, low] if self.variant == "skip" else [low, skip], 1)
        return self.run(part, both)

    def mapped(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for part in self.down:
            x = self.run(part, F.max_pool2d(x, 2) if seen else x)
            seen.append(x)
        x = F.dropout2d(seen[2], 0.2) if self.variant == "dropout" else seen[2]
        for part, skip in zip(self.up, (seen[1], seen[0]), strict=True):
            x = self.joined(part, x, skip)
        if self.variant == "linear head":
            return F.linear(x.permute(0, 2, 3, 1), self.head.weight.flatten(1), self.head.bias).permute(0, 3, 1, 2)
        return self.head(x)

    def loss(self, step: int) -> torch.Tensor:
        x, y = self.data(step)
        return self.one(x, y, y.shape[0])

    def data(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.normal(step, 4, 3, 16, 16)
        x = x.contiguous(memory_format=torch.channels_last) if self.variant == "channels last" else x
        return x, self.numbers(step, 4, 4, 4, 4).repeat_interleave(4, 1).repeat_interleave(4, 2)

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        x, y = self.data(step)
        if self.variant == "halves":
            total = self.weights[y].sum()
            yield self.one(x[:2], y[:2], 4, self.weights[y[:2]].sum() / total), None
            yield self.one(x[2:], y[2:], 4, self.weights[y[2:]].sum() / total), 0
        else:
            yield self.one(x, y, 4), 0

    def one(self, x: torch.Tensor, y: torch.Tensor, batch: int, part: torch.Tensor | None = None) -> torch.Tensor:
        """The loss of these images, as their part of the whole batch."""
        logits = wide(self.mapped(x))
        share = logits.softmax(-1 if self.variant == "channels" else 1)
        right = F.one_hot(y, 4).permute(0, 3, 1, 2).to(share.dtype)
        if self.variant == "gathered":
            weight = self.weights.to(logits.dtype)[y]
            single = -logits.log_softmax(1).gather(1, y[:, None]).squeeze(1)
            entropy = (single * weight).sum() / weight.sum()
        else:
            entropy = F.cross_entropy(logits, y, self.weights.to(logits.dtype))
        dims = (0, 2, 3) if self.variant == "dims" else (2, 3)
        if self.variant == "einsum":
            both = torch.einsum("bchw,bchw->bc", share, right)
        else:
            both = (share * right).sum(dims)
        smooth = float(self.choose("smooth", 1e-5, 1.0))
        overlap = (2 * both + smooth) / (share.sum(dims) + right.sum(dims) + smooth)
        overlap = overlap[..., 0:] if self.variant == "background" else overlap[..., 1:]
        far = (1 - overlap).mean() * float(self.choose("overlap", 1.0, 0.5))
        return entropy + far if part is None else entropy * part + far * (len(x) / batch)


PROGRAMS: dict[str, type[Program]] = {"windows": Windows, "segmentation": Segmentation}
