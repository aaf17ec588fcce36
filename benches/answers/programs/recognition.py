"""Programs that recognise images: a transformer with spare tokens, and a network trained for numbers of eight bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.utils.checkpoint import checkpoint


class Registers(Program):
    """Patches, a token for the class and four spare ones. Images are mixed in pairs, and early layers learn more slowly."""

    broad = True
    optimizers = ("lion",)
    mistakes = {
        "averaged": ("structure", "argument"), "placed": ("structure",), "layer scale": ("input",), "front": ("structure", "argument", "input"),
        "transposed": ("structure", "argument"), "heads": ("argument", "structure"), "aligned": ("argument",), "unmixed": ("structure",),
        "smoothing": ("argument",), "tanh": ("argument",), "eps": ("argument",), "pace": ("optimizer", "argument"),
        "keep": ("optimizer", "argument"), "drop": ("structure",), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("linear patches", "formula", "soft", "scaled weights", "three maps", "checkpointed", "apart", "erf")

    def build(self) -> None:
        self.patches, self.kind = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(32) * 0.3)
        self.spare, self.places = nn.Parameter(torch.randn(4, 32) * 0.3), nn.Parameter(torch.randn(32, 6, 6) * 0.3)
        eps = float(self.choose("eps", 1e-2, 1e-6))
        self.firsts, self.seconds = (nn.ModuleList(nn.LayerNorm(32, eps if i else 1e-6) for i in range(2)) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(32, 96, bias=False) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.enters, self.leaves = nn.ModuleList(nn.Linear(32, 96) for _ in range(2)), nn.ModuleList(nn.Linear(96, 32) for _ in range(2))
        start = 1.0 if self.variant == "layer scale" else 0.2
        self.scales = nn.ParameterList(torch.full((2, 32), start) for _ in range(2))
        self.last, self.head = nn.LayerNorm(32, 1e-6), nn.Linear(32, 12)

    def forgotten(self) -> nn.Parameter:
        return self.places

    def groups(self) -> list[list[Any]]:
        """Each layer learns at 0.6 of the rate of the one above."""
        parts: list[list[nn.Parameter]] = [[], [], [], []]
        for name, p in self.named_parameters():
            layer = 3 if name.startswith(("last", "head")) else 0
            if name.split(".")[0] in ("firsts", "seconds", "qkv", "outs", "enters", "leaves", "scales"):
                layer = int(name.split(".")[1]) + 1
            parts[layer].append(p)
        late = 2 if self.variant == "pace" else 3
        return [[{"params": part, "lr": 1e-3 * 0.6 ** (late - i)} for i, part in enumerate(parts)]]

    def options(self) -> dict[str, Any]:
        return {"keep": float(self.choose("keep", 0.5, 0.9))}

    def attend(self, x: torch.Tensor, i: int) -> torch.Tensor:
        if self.variant == "heads":
            q, k, v = self.qkv[i](x).unflatten(-1, (4, 3, 8)).permute(3, 0, 2, 1, 4)
        elif self.variant == "three maps":
            q, k, v = (F.linear(x, w).unflatten(-1, (4, 8)).transpose(1, 2) for w in self.qkv[i].weight.chunk(3))
        else:
            q, k, v = self.qkv[i](x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            h = (q * 8**-0.5 @ k.mT).softmax(-1).to(v.dtype) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v)
        return h.transpose(1, 2).flatten(2)

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        one, two = self.scales[i]
        h, out, leave = self.attend(self.firsts[i](x), i), self.outs[i], self.leaves[i]
        if self.variant == "scaled weights":
            x = x + F.linear(h, out.weight * one[:, None], out.bias * one)
        else:
            x = x + one * out(h)
        h = self.enters[i](self.seconds[i](x))
        if self.variant == "erf":
            h = 0.5 * h * (1 + torch.erf(h * 0.5**0.5))
        else:
            h = F.gelu(h, approximate="tanh" if self.variant == "tanh" else "none")
        if self.variant == "scaled weights":
            return x + F.linear(h, leave.weight * two[:, None], leave.bias * two)
        h = two * leave(h)
        if self.variant == "drop":
            # A whole branch is dropped for some images, as it is where training is never told to stop that.
            h = h * (torch.arange(len(h)) % 4 != i + 1).to(h.dtype)[:, None, None] / 0.75
        return x + h

    def placed(self) -> torch.Tensor:
        """Places of 6 by 6 patches, for 4 by 4."""
        grid = F.interpolate(wide(self.places)[None], (4, 4), mode="bilinear", align_corners=self.variant == "aligned")
        return (grid.mT if self.variant == "transposed" else grid).flatten(2).mT

    def mapped(self, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "linear patches":
            rows = x.unflatten(3, (4, 4)).unflatten(2, (4, 4)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
            x = F.linear(rows, self.patches.weight.flatten(1), self.patches.bias)
        else:
            x = self.patches(x).flatten(2).mT
        places, spare = self.placed().to(x.dtype), self.spare.to(x.dtype).expand(len(x), -1, -1)
        kind = self.kind.to(x.dtype).expand(len(x), 1, -1)
        if self.variant == "placed":
            x = torch.cat([kind, spare, x], 1)
            x = x + F.pad(places, (0, 0, 1, 4))
        else:
            x = torch.cat([spare, kind, x + places] if self.variant == "front" else [kind, spare, x + places], 1)
        for i in range(2):
            x = checkpoint(self.layer, x, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, i)
        x = self.last(x)
        # The head reads the class and the mean of the patches together.
        return self.head(x[:, 0] + (x[:, 1:] if self.variant == "averaged" else x[:, 5:]).mean(1))

    def loss(self, step: int) -> torch.Tensor:
        x, y, share = self.normal(step, 8, 3, 16, 16), self.numbers(step, 12, 8), 0.7
        x = share * x + (1 - share) * x.flip(0)
        if self.variant == "apart":
            logits = torch.cat([self.mapped(x[:3]), self.mapped(x[3:])])
        else:
            logits = self.mapped(x)
        logits, smooth = wide(logits), float(self.choose("smoothing", 0.0, 0.1))
        if self.variant == "soft":
            aim = share * F.one_hot(y, 12).to(logits.dtype) + (1 - share) * F.one_hot(y.flip(0), 12).to(logits.dtype)
            return -((0.9 * aim + 0.1 / 12) * logits.log_softmax(-1)).sum(-1).mean()
        first = F.cross_entropy(logits, y, label_smoothing=smooth)
        if self.variant == "unmixed":
            return first
        return share * first + (1 - share) * F.cross_entropy(logits, y.flip(0), label_smoothing=smooth)


class Rounded(torch.autograd.Function):
    """Rounds; backward the gradient passes where the value was within its bounds."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
        ctx.save_for_backward((x >= low) & (x <= high))
        return x.clamp(low, high).round()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


class Quantised(Program):
    """Weights and activations are rounded to eight bits as they are used, as if they were integers already."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "one scale": ("argument", "structure"), "bits": ("argument",), "straight": ("structure", "gradient"), "floor": ("structure",),
        "watched": ("argument", "input", "structure"), "unwatched": ("structure", "input"), "early": ("structure",), "signed": ("argument",),
        "filters": ("argument", "structure"), "ranges": ("input",), "mode": ("argument", "structure"),
        "nesterov": ("optimizer", "argument", "structure"),
        "decay": ("optimizer", "argument", "structure"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("function", "largest", "multiplied later", "lerp", "one by one", "norm by hand", "linear")

    def build(self) -> None:
        sizes = ((3, 16, 2), (16, 24, 2), (24, 24, 1))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, by, 1, bias=False) for a, b, by in sizes)
        self.norms, self.head = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _ in sizes), nn.Linear(24, 10)
        start = 6.0 if self.variant == "ranges" else 2.5
        self.register_buffer("ranges", torch.full((4,), start))

    def train(self, mode: bool = True) -> Quantised:
        super().train(mode)
        self.norms[1].train(mode and self.variant != "mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.convs[2].weight

    def groups(self) -> list[list[Any]]:
        free = 0.1 if self.variant == "decay" else 0.0
        return [[
            {"params": [p for p in self.parameters() if p.dim() > 1], "weight_decay": 1e-3},
            {"params": [p for p in self.parameters() if p.dim() < 2], "weight_decay": free},
        ]]  # fmt: skip

    def options(self) -> dict[str, Any]:
        return {"nesterov": self.variant != "nesterov"}

    def rounded(self, x: torch.Tensor, scale: torch.Tensor, low: int, high: int) -> torch.Tensor:
        """What x would be as an integer, times its scale."""
        x = x / scale
        if self.variant == "function":
            return Rounded.apply(x, low, high) * scale
        held = x.clamp(low, high)
        if self.variant == "straight":
            return held.round() * scale
        whole = held.floor() if self.variant == "floor" else held.round()
        if self.variant == "multiplied later":
            return held * scale + ((whole - held) * scale).detach()
        return (held + (whole - held).detach()) * scale

    def weight(self, weight: torch.Tensor) -> torch.Tensor:
        weight, most = wide(weight), int(self.choose("bits", 7, 127))
        long, dims = weight.detach().abs(), tuple(range(1, weight.dim()))
        if self.variant == "one scale":
            size = long.amax()
        elif self.variant == "largest":
            size = torch.maximum(weight.detach().amax(dims, keepdim=True), -weight.detach().amin(dims, keepdim=True))
        else:
            # Each filter has a scale of its own.
            size = long.amax((0, *dims[1:]) if self.variant == "filters" else dims, keepdim=True)
        scale = size.clamp_min(1e-8) / most
        if self.variant == "one by one":
            rows = zip(weight, scale, strict=True)
            return torch.stack([self.rounded(row, by, -most, most) for row, by in rows])
        return self.rounded(weight, scale, -most, most)

    def activation(self, x: torch.Tensor, i: int) -> torch.Tensor:
        """Range of x, an average over steps that keeps 0.9, and x rounded by it. Behind a ReLU all bits are for what is positive."""
        x, keep = wide(x), 0.99 if self.variant == "watched" else 0.9
        with torch.no_grad():
            most = x.abs().amax().to(self.ranges.dtype)
            if self.variant == "lerp":
                self.ranges[i].lerp_(most, 1 - keep)
            elif self.variant != "unwatched":
                self.ranges[i] = keep * self.ranges[i] + (1 - keep) * most
        used = (most if self.variant == "unwatched" else self.ranges[i].clone()).to(x.dtype)
        if i == 0 or self.variant == "signed":
            return self.rounded(x, used / 127, -127, 127)
        return self.rounded(x, used / 255, 0, 255)

    def normed(self, x: torch.Tensor, i: int) -> torch.Tensor:
        norm = self.norms[i]
        if self.variant == "norm by hand":
            h = x - x.mean((0, 2, 3), keepdim=True)
            h = h * torch.rsqrt(h.square().mean((0, 2, 3), keepdim=True) + norm.eps)
            with torch.no_grad():
                norm.num_batches_tracked.add_(1)
                norm.running_mean.lerp_(x.mean((0, 2, 3)), norm.momentum)
                norm.running_var.lerp_(x.var((0, 2, 3)), norm.momentum)
            return h * norm.weight[:, None, None] + norm.bias[:, None, None]
        return norm(x)

    def loss(self, step: int) -> torch.Tensor:
        x, dtype = self.normal(step, 12, 3, 16, 16), self.head.weight.dtype
        x = self.activation(x, 0).to(dtype)
        for i, conv in enumerate(self.convs):
            weight = self.weight(conv.weight).to(dtype)
            if self.variant == "linear":
                rows = F.unfold(x, 3, padding=1, stride=conv.stride)
                h = (weight.flatten(1) @ rows).unflatten(-1, (x.shape[2] // conv.stride[0], -1))
            else:
                h = F.conv2d(x, weight, None, conv.stride, conv.padding)
            if self.variant == "early":
                x = F.relu(self.activation(self.normed(h, i), i + 1)).to(dtype)
            else:
                x = self.activation(F.relu(self.normed(h, i)), i + 1).to(dtype)
        logits = F.linear(x.mean((2, 3)), self.weight(self.head.weight).to(dtype), self.head.bias)
        return F.cross_entropy(wide(logits), self.numbers(step, 10, 12))


PROGRAMS: dict[str, type[Program]] = {"registers": Registers, "quantised": Quantised}
