"""Blocks of images: (batch, width, height, breadth)."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from programs.drawn.block import ACTIVATIONS, Block, activation, another
from torch import nn


class Convolution(Block):
    """A convolution, a norm and an activation."""

    ways = ("taps", "columns", "norm by hand", "formula")
    mistakes = {
        "edges": ("argument", "structure", "input"), "dilation": ("argument",), "eps": ("argument",), "activation": ("structure", "argument"),
        "evaluated": ("argument", "structure", "input"),
    }  # fmt: skip

    def build(self, draw: random.Random) -> None:
        self.kind, self.norm = activation(draw), draw.choice(("batch", "group", "instance"))
        self.map = nn.Conv2d(self.width, self.width, 3, padding=1, bias=draw.random() < 0.5)
        self.weight, self.bias = nn.Parameter(torch.rand(self.width) + 0.5), nn.Parameter(torch.randn(self.width) * 0.1)
        self.register_buffer("mean", torch.zeros(self.width))
        self.register_buffer("variance", torch.ones(self.width))

    def mapped(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias, (height, breadth) = self.map.weight, self.map.bias, x.shape[2:]
        if self.way == "edges":
            return F.conv2d(F.pad(x, (1, 1, 1, 1), "replicate"), weight, bias)
        if self.way == "dilation":
            return F.conv2d(x, weight, bias, padding=2, dilation=2)
        if self.way == "columns":
            out = (weight.flatten(1) @ F.unfold(x, 3, padding=1)).unflatten(2, (height, breadth))
            return out if bias is None else out + bias[:, None, None]
        if self.way == "taps":
            padded = F.pad(x, (1, 1, 1, 1))
            out = sum(
                F.conv2d(padded[..., i : i + height, j : j + breadth], weight[..., i, j, None, None]) for i in range(3) for j in range(3)
            )
            return out if bias is None else out + bias[:, None, None]
        return self.map(x)

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        eps = 3e-2 if self.way == "eps" else 1e-5
        if self.way == "evaluated" and self.norm == "batch":
            return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, False, 0.1, eps)
        groups = {"batch": 1, "group": 4, "instance": self.width}[self.norm]
        groups = 2 if self.way == "evaluated" and self.norm == "group" else groups
        if self.way == "norm by hand":
            seen = x.unflatten(1, (groups, -1)) if self.norm != "batch" else x
            dims = (0, 2, 3) if self.norm == "batch" else (2, 3, 4)
            variance, mean = torch.var_mean(seen, dims, correction=0, keepdim=True)
            seen = (seen - mean) / (variance + eps).sqrt()
            return seen.view_as(x) * self.weight[:, None, None] + self.bias[:, None, None]
        if self.norm == "batch":
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.1, eps)
        if self.norm == "instance" and self.way != "evaluated":
            return F.instance_norm(x, None, None, self.weight, self.bias, True, 0.1, eps)
        return F.group_norm(x, 1 if self.norm == "instance" else groups, self.weight, self.bias, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = another(self.kind) if self.way == "activation" else self.kind
        return ACTIVATIONS[kind][self.way == "formula"](self.normed(self.mapped(x)))


class Separable(Block):
    """A convolution of each channel alone, and a map of all channels."""

    ways = ("linear map", "taps", "joined")
    mistakes = {"reach": ("structure", "argument", "input"), "shuffled": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.alone = nn.Conv2d(self.width, self.width, 3, padding=1, groups=self.width, bias=False)
        self.all = nn.Conv2d(self.width, self.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.alone.weight
        if self.way == "joined":
            return F.conv2d(x, self.all.weight * weight[:, 0], self.all.bias, padding=1)
        if self.way == "taps":
            padded, (height, breadth) = F.pad(x, (1, 1, 1, 1)), x.shape[2:]
            h = sum(padded[..., i : i + height, j : j + breadth] * weight[:, :, i, j, None] for i in range(3) for j in range(3))
        elif self.way == "reach":
            h = F.conv2d(x, weight[..., 1:2, :], padding=(0, 1), groups=self.width)
        else:
            h = self.alone(x)
        if self.way == "shuffled":
            h = h.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        if self.way == "linear map":
            return F.linear(h.permute(0, 2, 3, 1), self.all.weight.flatten(1), self.all.bias).permute(0, 3, 1, 2)
        return self.all(h)


class Excitation(Block):
    """Scales channels by their means."""

    ways = ("linear", "means")
    mistakes = {"largest": ("structure",), "hard": ("structure",)}

    def build(self, draw: random.Random) -> None:
        self.down, self.up = nn.Conv2d(self.width, self.width // 4, 1), nn.Conv2d(self.width // 4, self.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "linear":
            h = F.linear(x.mean((2, 3)), self.down.weight.flatten(1), self.down.bias).relu()
            return x * F.linear(h, self.up.weight.flatten(1), self.up.bias).sigmoid()[..., None, None]
        if self.way == "means":
            h = x.mean((2, 3), keepdim=True)
        else:
            h = F.adaptive_max_pool2d(x, 1) if self.way == "largest" else F.adaptive_avg_pool2d(x, 1)
        h = self.up(self.down(h).relu())
        return x * (F.hardsigmoid(h) if self.way == "hard" else h.sigmoid())


class Pyramid(Block):
    """Sees half of the size, and goes back."""

    ways = ("means", "repeated", "strided")
    mistakes = {"largest": ("structure",), "smooth": ("structure", "argument", "input")}

    def build(self, draw: random.Random) -> None:
        self.map = nn.Conv2d(self.width, self.width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "means":
            h = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean((3, 5))
        elif self.way == "strided":
            kernel = torch.full((self.width, 1, 2, 2), 0.25, dtype=x.dtype)
            h = F.conv2d(x, kernel, stride=2, groups=self.width)
        else:
            h = F.max_pool2d(x, 2) if self.way == "largest" else F.avg_pool2d(x, 2)
        h = self.map(h)
        if self.way == "repeated":
            return h.repeat_interleave(2, 2).repeat_interleave(2, 3)
        if self.way == "smooth":
            return F.interpolate(h, scale_factor=2.0, mode="bilinear")
        return F.interpolate(h, scale_factor=2.0, mode="nearest")


class Patches(Block):
    """Packs two by two places into channels, maps them, and unpacks them."""

    ways = ("by hand", "strided")
    mistakes = {"order": ("structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.map, self.kind = nn.Conv2d(4 * self.width, 4 * self.width, 1), activation(draw)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        act = ACTIVATIONS[self.kind][0]
        if self.way == "strided":
            h = F.conv2d(x, self.map.weight.view(-1, self.width, 2, 2), self.map.bias, stride=2)
        elif self.way == "by hand":
            packed = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
            h = self.map(packed)
        else:
            h = self.map(F.pixel_unshuffle(x, 2))
        h = act(h)
        if self.way in ("by hand", "order"):
            cut = h.unflatten(1, (self.width, 2, 2)) if self.way == "by hand" else h.unflatten(1, (2, 2, self.width)).permute(0, 3, 1, 2, 4, 5)
            return cut.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        return F.pixel_shuffle(h, 2)


class Sight(Block):
    """Attention between all places of an image."""

    ways = ("formula", "linear maps")
    mistakes = {"scale": ("argument", "structure"), "over channels": ("structure", "input", "argument")}

    def build(self, draw: random.Random) -> None:
        self.qkv, self.out = nn.Conv2d(self.width, 3 * self.width, 1, bias=False), nn.Conv2d(self.width, self.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "linear maps":
            q, k, v = F.linear(x.flatten(2).mT, self.qkv.weight.flatten(1)).chunk(3, -1)
        else:
            q, k, v = (t.mT for t in self.qkv(x).flatten(2).chunk(3, 1))
        scale = self.width ** (-1.0 if self.way == "scale" else -0.5)
        if self.way == "over channels":
            mixed = F.scaled_dot_product_attention(q.mT, k.mT, v.mT, scale=scale).mT
        elif self.way == "formula":
            mixed = (q @ k.mT * scale).softmax(-1).to(v.dtype) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return self.out(mixed.mT.unflatten(2, x.shape[2:]))


class Places(Block):
    """Tells each place where it is."""

    ways = ("split", "added")
    mistakes = {"turned": ("structure", "input", "argument"), "to one": ("argument", "structure", "input")}

    def build(self, draw: random.Random) -> None:
        self.map = nn.Conv2d(self.width + 2, self.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, breadth = x.shape[2:]
        start = 0.0 if self.way == "to one" else -1.0
        rows, columns = torch.linspace(start, 1, height, dtype=x.dtype), torch.linspace(start, 1, breadth, dtype=x.dtype)
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="xy" if self.way == "turned" else "ij"))
        if self.way == "split":
            seen, told = self.map.weight.split([self.width, 2], 1)
            return F.conv2d(x, seen, self.map.bias) + F.conv2d(grid[None], told)
        if self.way == "added":
            told = torch.einsum("oc,chw->ohw", self.map.weight[:, self.width :, 0, 0], grid)
            return F.conv2d(x, self.map.weight[:, : self.width], self.map.bias) + told
        return self.map(torch.cat([x, grid.expand(len(x), -1, -1, -1)], 1))


GRIDS: tuple[type[Block], ...] = (Convolution, Convolution, Separable, Excitation, Pyramid, Patches, Sight, Places)
