"""Programs of frames: a film that is looked at in space and then in time, and small images that are made larger."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Film(Program):
    """Patches of two frames look at those of the same time, then at those of the same place. Films are mixed in pairs."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "rows": ("structure", "argument"), "places": ("structure", "input"), "backwards": ("structure", "input"),
        "frames first": ("structure", "argument"), "colours": ("input",), "first": ("structure", "argument"),
        "heads": ("structure", "argument"), "eps": ("argument",), "unmixed": ("structure", "input", "argument"),
        "smoothing": ("argument",), "post norm": ("structure",), "no time": ("structure",), "decay": ("optimizer", "argument"),
        "unloaded": ("input",),
    }  # fmt: skip
    alike = ("linear patches", "formula", "mixed late", "three maps", "einsum", "checkpointed", "folded mean")

    def build(self) -> None:
        self.patches, self.head, self.last = nn.Conv3d(3, 32, (2, 4, 4), (2, 4, 4)), nn.Linear(32, 10), nn.LayerNorm(32)
        self.where, self.when = nn.Parameter(torch.randn(4, 32) * 0.3), nn.Parameter(torch.randn(4, 32) * 0.3)
        eps = float(self.choose("eps", 1e-1, 1e-5))
        self.norms = nn.ModuleList(nn.LayerNorm(32, eps if i == 3 else 1e-5) for i in range(6))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(32, n) for _ in range(4)) for n in (96, 32))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.register_buffer("mean", torch.tensor([0.48, 0.43, 0.37])[:, None, None, None])
        spread = torch.tensor([0.22, 0.25, 0.31])
        self.register_buffer("spread", (spread.flip(0) if self.variant == "colours" else spread)[:, None, None, None])

    def forgotten(self) -> nn.Parameter:
        return self.outs[2].weight

    def groups(self) -> list[list[Any]]:
        free = 0.05 if self.variant == "decay" else 0.0
        flat, full = ([p for p in self.parameters() if (p.dim() > 1) == high] for high in (False, True))
        return [[{"params": full, "weight_decay": 0.05}, {"params": flat, "weight_decay": free}]]

    def options(self) -> dict[str, Any]:
        return {"nesterov": True}

    def attend(self, x: torch.Tensor, i: int) -> torch.Tensor:
        """Rows of x (row, token, width) are by themselves."""
        if self.variant == "three maps":
            maps = zip(self.qkv[i].weight.chunk(3), self.qkv[i].bias.chunk(3), strict=True)
            q, k, v = (F.linear(x, w, b).unflatten(-1, (4, 8)).transpose(1, 2) for w, b in maps)
        elif self.variant == "heads":
            q, k, v = self.qkv[i](x).unflatten(-1, (4, 3, 8)).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = self.qkv[i](x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            h = (q @ k.mT * 8**-0.5).softmax(-1).to(v.dtype) @ v
        elif self.variant == "einsum":
            share = torch.einsum("bhtd,bhsd->bhts", q * 8**-0.5, k).softmax(-1)
            h = torch.einsum("bhts,bhsd->bhtd", share, v.to(share.dtype))
        else:
            h = F.scaled_dot_product_attention(q, k, v)
        return self.outs[i](h.transpose(1, 2).flatten(2))

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        """x is (film, time, place, width)."""
        films = len(x)
        if self.variant == "post norm":
            x = self.norms[3 * i](x + self.attend(x.flatten(0, 1), 2 * i).view_as(x))
        else:
            x = x + self.attend(self.norms[3 * i](x).flatten(0, 1), 2 * i).view_as(x)
        if self.variant != "no time" or i == 0:
            h = self.norms[3 * i + 1](x)
            if self.variant == "rows":
                x = x + self.attend(h.reshape(films * 4, 4, 32), 2 * i + 1).view_as(x)
            else:
                h = self.attend(h.transpose(1, 2).flatten(0, 1), 2 * i + 1)
                x = x + h.unflatten(0, (films, 4)).transpose(1, 2)
        return x + self.mlps[i](self.norms[3 * i + 2](x))

    def loss(self, step: int) -> torch.Tensor:
        films = self.normal(step, 4, 3, 8, 8, 8).sigmoid()
        kinds, share = self.numbers(step, 10, 4, stream=1), 0.7
        if self.variant == "frames first":
            films = films.transpose(1, 2).reshape(4, 3, 8, 8, 8)
        x = (films - self.mean) / self.spread
        x = x.flip(2) if self.variant == "backwards" else x
        x = share * x + (1 - share) * (x if self.variant == "unmixed" else x.roll(1, 0))
        if self.variant == "linear patches":
            rows = x.unflatten(4, (2, 4)).unflatten(3, (2, 4)).unflatten(2, (4, 2)).permute(0, 2, 4, 6, 1, 3, 5, 7)
            x = F.linear(rows.flatten(4).flatten(2, 3), self.patches.weight.flatten(1), self.patches.bias)
        else:
            x = self.patches(x).flatten(3).permute(0, 2, 3, 1)
        if self.variant == "places":
            x = x + self.when + self.where[:, None]
        else:
            x = x + self.where + self.when[:, None]
        for i in range(2):
            x = checkpoint(self.layer, x, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, i)
        x = self.last(x)
        if self.variant == "first":
            x = x[:, 0, 0]
        else:
            x = x.mean(1).mean(1) if self.variant == "folded mean" else x.mean((1, 2))
        logits, smooth = wide(self.head(x)), float(self.choose("smoothing", 0.0, 0.1))
        if self.variant == "mixed late":
            aim = share * F.one_hot(kinds, 10).to(logits.dtype) + (1 - share) * F.one_hot(kinds.roll(1), 10).to(logits.dtype)
            return F.cross_entropy(logits, aim, label_smoothing=smooth)
        mine, theirs = (F.cross_entropy(logits, aim, label_smoothing=smooth) for aim in (kinds, kinds.roll(1)))
        return share * mine + (1 - share) * theirs


class Upscaling(Program):
    """Blocks that weigh their channels, and channels that become places. The loss is of colours and of what a frozen network sees."""

    broad = True
    optimizers = ("lion",)
    mistakes = {
        "shuffle": ("structure", "argument"), "frozen mode": ("argument", "structure"), "cut": ("structure", "gradient"),
        "mean": ("structure",), "eps": ("argument",), "residual": ("argument",), "enlarged": ("argument",), "smooth": ("argument",),
        "early": ("structure", "input"), "most": ("structure",), "gate": ("structure",), "weighed": ("argument",), "colours": ("input",),
        "keep": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("shuffled by hand", "transposed conv", "linear gate", "norm by hand", "hypotenuse", "halves", "sliced")

    def build(self) -> None:
        self.enter, self.leave = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 12, 3, 1, 1)
        self.bodies = nn.ModuleList(nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.PReLU(), nn.Conv2d(16, 16, 3, 1, 1)) for _ in range(2))
        self.downs, self.ups = nn.ModuleList(nn.Conv2d(16, 4, 1) for _ in range(2)), nn.ModuleList(nn.Conv2d(4, 16, 1) for _ in range(2))
        self.judge = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, 1, 1))
        self.judge[1].running_mean.copy_(torch.linspace(-0.2, 0.2, 16))
        self.judge[1].running_var.copy_(torch.linspace(0.3, 1.5, 16))
        self.judge.requires_grad_(False)
        mean, spread = torch.tensor([0.45, 0.44, 0.40])[:, None, None], torch.tensor([0.23, 0.28, 0.35])[:, None, None]
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread.flip(0) if self.variant == "colours" else spread)

    def train(self, mode: bool = True) -> Upscaling:
        super().train(mode)
        self.judge.train(mode and self.variant == "frozen mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.bodies[1][2].weight

    def options(self) -> dict[str, Any]:
        return {"keep": 0.6} if self.variant == "keep" else {}

    def gated(self, h: torch.Tensor, i: int) -> torch.Tensor:
        pooled = h.amax((2, 3), keepdim=True) if self.variant == "most" else F.adaptive_avg_pool2d(h, 1)
        down, up = self.downs[i], self.ups[i]
        if self.variant == "linear gate":
            gate = F.linear(F.linear(h.mean((2, 3)), down.weight.flatten(1), down.bias).relu(), up.weight.flatten(1), up.bias)
            return h * gate.sigmoid()[..., None, None]
        gate = up(down(pooled).relu())
        return h * (gate.tanh() if self.variant == "gate" else gate.sigmoid())

    def larger(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x if self.variant == "mean" else x - self.mean)
        first = h
        for i, body in enumerate(self.bodies):
            h = h + float(self.choose("residual", 1.0, 0.2)) * self.gated(body(h), i)
        h = h + first
        if self.variant == "transposed conv":
            # Each of the twelve channels is put where it belongs by a convolution of ones and noughts.
            h, put = self.leave(h), torch.eye(12, dtype=x.dtype).view(12, 3, 2, 2)
            out = F.conv_transpose2d(h, put.to(h.dtype), stride=2)
        elif self.variant == "shuffled by hand":
            out = self.leave(h).unflatten(1, (3, 2, 2)).permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)
        elif self.variant == "shuffle":
            out = self.leave(h).unflatten(1, (2, 2, 3)).permute(0, 3, 4, 1, 5, 2).flatten(4).flatten(2, 3)
        else:
            out = F.pixel_shuffle(self.leave(h), 2)
        wider = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=self.variant == "enlarged")
        return out + wider

    def seen(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - self.mean) / self.spread
        if self.variant == "early":
            return self.judge[:3](x)
        if self.variant == "norm by hand":
            first, norm, last = self.judge[0], self.judge[1], self.judge[4]
            x = first(x)
            x = (x - norm.running_mean[:, None, None]) * (norm.running_var + norm.eps).rsqrt()[:, None, None]
            return last(F.max_pool2d(x.relu(), 2))
        return self.judge(x)

    def loss(self, step: int) -> torch.Tensor:
        aim = F.interpolate(self.normal(step, 4, 3, 8, 8), scale_factor=2, mode="bicubic").sigmoid()
        x = F.avg_pool2d(aim, 2)
        out = torch.cat([self.larger(part) for part in x.split(2)]) if self.variant == "halves" else self.larger(x)
        with torch.no_grad():
            theirs = wide(self.seen(aim))
        mine = wide(self.seen(out.detach() if self.variant == "cut" else out))
        out, aim = wide(out), wide(aim)
        eps = float(self.choose("eps", 1e-1, 1e-3))
        if self.variant == "hypotenuse":
            near = torch.hypot(out - aim, out.new_full((), eps)).mean()
        else:
            near = ((out - aim).square() + eps**2).sqrt().mean()
        if self.variant == "sliced":
            steps = ((out[..., 1:] - out[..., :-1]).abs().mean(), (out[..., 1:, :] - out[..., :-1, :]).abs().mean())
        else:
            steps = (out.diff(dim=-1).abs().mean(), out.diff(dim=-2).abs().mean())
        far = float(self.choose("weighed", 1.0, 0.1)) * F.mse_loss(mine, theirs)
        return near + far + float(self.choose("smooth", 0.1, 0.01)) * (steps[0] + steps[1])


PROGRAMS: dict[str, type[Program]] = {"film": Film, "upscaling": Upscaling}
