"""Programs of sound: a decoder that makes waves of spectra, and a recogniser of convolutions and attention."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Residual(nn.Module):
    """Dilated convolutions whose weights are a direction and a length, each beside its input."""

    def __init__(self, program: Program, width: int, size: int) -> None:
        super().__init__()
        self.variant = program.variant
        dilations = (1, 2) if self.variant == "dilation" else (1, 3)
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(width, width, size, 1, (size - 1) // 2 * d, d)) for d in dilations)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            h = leaky(x, self.variant)
            if self.variant == "weight by hand":
                length, way = conv.parametrizations.weight.original0, conv.parametrizations.weight.original1
                weight = way * (length / way.square().sum((1, 2), keepdim=True).sqrt())
                x = x + F.conv1d(h, weight, conv.bias, 1, conv.padding, conv.dilation)
            else:
                x = x + conv(h)
        return x


def leaky(x: torch.Tensor, variant: str) -> torch.Tensor:
    if variant == "larger":
        return torch.maximum(x, 0.1 * x)
    return F.leaky_relu(x, 0.01 if variant == "slope" else 0.1)


class Vocoder(Program):
    """Spectra become waves by transposed convolutions. The loss compares spectra of three sizes, and bands as one hears them."""

    broad = True
    mistakes = {
        "slope": ("argument",), "dilation": ("argument",), "summed": ("structure", "argument"), "window": ("input",),
        "hop": ("argument", "structure"), "least": ("argument",), "power": ("structure", "argument"), "centred": ("argument", "structure"),
        "open": ("structure",), "bands": ("argument",), "one size": ("structure",), "overlap": ("argument",),
        "betas": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("weight by hand", "larger", "inserted", "frames", "parts", "linear bands", "stacked")

    def build(self) -> None:
        self.first, self.last = weight_norm(nn.Conv1d(8, 32, 7, padding=3)), weight_norm(nn.Conv1d(8, 1, 7, padding=3))
        by = int(self.choose("overlap", 0, 1))
        self.ups = nn.ModuleList([nn.ConvTranspose1d(32, 16, 8, 4, 2), nn.ConvTranspose1d(16, 8, 4, 2, by)])
        self.parts = nn.ModuleList(nn.ModuleList(Residual(self, width, size) for size in (3, 5)) for width in (16, 8))
        for n in (8, 16, 32):
            self.register_buffer(f"window{n}", torch.ones(n) if self.variant == "window" else torch.hann_window(n))
        edges = torch.linspace(0, 16, 8)
        bands = (1 - (torch.arange(17.0) - edges[:, None]).abs() / 3).clamp_min(0)
        self.register_buffer("bands", bands / bands.sum(1, keepdim=True))

    def forgotten(self) -> nn.Parameter:
        return self.ups[1].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.999) if self.variant == "betas" else (0.8, 0.99)}

    def up(self, i: int, x: torch.Tensor) -> torch.Tensor:
        conv = self.ups[i]
        if self.variant == "inserted":
            by, size = conv.stride[0], conv.kernel_size[0]
            x = F.pad(x.unsqueeze(-1), (0, by - 1)).flatten(-2)[..., : (x.shape[-1] - 1) * by + 1]
            return F.conv1d(x, conv.weight.transpose(0, 1).flip(-1), conv.bias, padding=size - 1 - conv.padding[0])
        return conv(x)[..., : x.shape[-1] * conv.stride[0]]

    def made(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for i, parts in enumerate(self.parts):
            h = self.up(i, leaky(h, self.variant))
            if self.variant == "stacked":
                h = torch.stack([part(h) for part in parts]).mean(0)
            else:
                h = sum(part(h) for part in parts) / (1 if self.variant == "summed" else 2)
        out = self.last(leaky(h, self.variant)).squeeze(1)
        return out if self.variant == "open" else out.tanh()

    def spectrum(self, x: torch.Tensor, size: int) -> torch.Tensor:
        """Sizes of frequencies (batch, frequency, frame)."""
        window = wide(getattr(self, f"window{size}"))
        hop = size // 2 if self.variant == "hop" else size // 4
        if self.variant == "frames":
            rows = F.pad(x.unsqueeze(1), (size // 2, size // 2), "reflect").squeeze(1).unfold(-1, size, hop)
            found = torch.fft.rfft(rows * window, dim=-1).mT
        else:
            found = torch.stft(x, size, hop, window=window, center=self.variant != "centred", return_complex=True)
        if self.variant == "parts":
            return torch.view_as_real(found).square().sum(-1).clamp_min(1e-14).sqrt()
        return found.abs().square() if self.variant == "power" else found.abs().clamp_min(1e-7)

    def far(self, mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        least = float(self.choose("least", 1.0, 1e-5))
        return F.l1_loss(mine.clamp_min(least).log(), theirs.clamp_min(least).log())

    def heard(self, found: torch.Tensor) -> torch.Tensor:
        if self.variant == "linear bands":
            return F.linear(found.mT, wide(self.bands)).mT
        return wide(self.bands) @ found

    def loss(self, step: int) -> torch.Tensor:
        time = torch.arange(96) * (2 * math.pi / 96)
        places, turns = self.normal(step, 4, 3, 1, stream=1), self.normal(step, 4, 3, 1)
        wave = wide((0.3 * ((12 + 8 * places) * time + turns).sin()).sum(1) + 0.02 * self.normal(step, 4, 96, stream=2))
        seen = self.normal(step, 4, 8, 12, stream=3) * 0.3 + places[:, :2].repeat_interleave(4, 1)
        out, total = wide(self.made(seen)), wave.new_zeros(())
        for size in (32,) if self.variant == "one size" else (32, 16, 8):
            mine, theirs = self.spectrum(out, size), self.spectrum(wave, size)
            total = total + (mine - theirs).norm() / theirs.norm() + self.far(mine, theirs)
            if size == 32:
                # Bands are made of the frequencies of the largest window.
                total = total + float(self.choose("bands", 1.0, 4.5)) * self.far(self.heard(mine), self.heard(theirs))
        return total


class Block(nn.Module):
    """Half a network, attention that knows distances, a convolution of each channel, and the other half."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.variant = program.variant
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(5))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(2))
        self.qkv, self.out, self.table = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 32, bias=False)
        self.where, self.what = nn.Parameter(torch.randn(4, 8) * 0.2), nn.Parameter(torch.randn(4, 8) * 0.2)
        self.enter, self.deep, self.leave = nn.Conv1d(32, 64, 1), nn.Conv1d(32, 32, 7, padding=3, groups=32), nn.Conv1d(32, 32, 1)
        self.batch = nn.BatchNorm1d(32)

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of queries by distance, from the largest to the least, become scores by keys."""
        *front, length, _ = x.shape
        if self.variant == "gathered":
            line = torch.arange(length)
            return x.gather(-1, (length - 1 - line[:, None] + line).expand(*front, -1, -1))
        x = F.pad(x, (0, 1) if self.variant == "turned" else (1, 0))
        return x.view(*front, 2 * length, length)[..., 1:, :].reshape(*front, length, 2 * length - 1)[..., :length]

    def attend(self, x: torch.Tensor, places: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        if self.variant == "three maps":
            maps = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
            q, k, v = (F.linear(x, w, b).unflatten(-1, (4, 8)) for w, b in maps)
        else:
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).unbind(2)
        table = self.table(places.to(x.dtype)).unflatten(-1, (4, 8))
        if self.variant == "einsum":
            near = torch.einsum("bthd,bshd->bhts", q + self.what, k)
            far = torch.einsum("bthd,shd->bhts", q + self.where, table)
        else:
            near = (q + self.what).transpose(1, 2) @ k.permute(0, 2, 3, 1)
            far = (q + self.where).transpose(1, 2) @ table.permute(1, 2, 0)
        scores = wide(near + self.shifted(far)) * (32 if self.variant == "scale" else 8) ** -0.5
        share = scores.masked_fill(hidden[:, None, None], -1e4).softmax(-1).to(v.dtype)
        return self.out((share @ v.transpose(1, 2)).transpose(1, 2).flatten(2))

    def convolved(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        if self.variant == "linear":
            h = F.linear(x, self.enter.weight.squeeze(-1), self.enter.bias).mT
        else:
            h = self.enter(x.mT)
        a, b = h.chunk(2, 1)
        h = b * a.sigmoid() if self.variant == "halves" else a * b.sigmoid() if self.variant == "gate by hand" else F.glu(h, 1)
        h = h if self.variant == "padding" else h.masked_fill(hidden[:, None], 0.0)
        if self.variant == "sliding":
            h = (F.pad(h, (3, 3)).unfold(-1, 7, 1) * self.deep.weight).sum(-1) + self.deep.bias[:, None]
        else:
            h = self.deep(h)
        return self.leave(F.silu(self.batch(h))).mT

    def forward(self, x: torch.Tensor, places: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        half = 1.0 if self.variant == "whole" else 0.5
        x = x + half * self.mlps[0](self.norms[0](x))
        x = x + self.attend(self.norms[1](x), places, hidden)
        x = x + self.convolved(self.norms[2](x), hidden)
        x = x + half * self.mlps[1](self.norms[3](x))
        return x if self.variant == "last norm" else self.norms[4](x)


class Conformer(Program):
    """Two such blocks behind a convolution that takes every other frame, and a loss over all alignments."""

    broad = True
    optimizers = ("fused",)
    mistakes = {
        "turned": ("argument", "structure"), "halves": ("structure", "input"), "padding": ("structure",), "whole": ("argument",),
        "scale": ("argument",), "last norm": ("structure",), "lengths": ("input",), "blank": ("argument",), "mode": ("argument", "structure"),
        "places": ("structure", "argument", "input"), "features": ("structure",), "summed": ("argument",),
        "decay": ("optimizer", "argument"), "unloaded": ("input",),
    }  # fmt: skip
    alike = ("gathered", "three maps", "einsum", "linear", "gate by hand", "sliding", "each", "logsumexp")

    def build(self) -> None:
        self.front, self.enter = nn.Conv2d(1, 8, 3, 2, 1), nn.Linear(64, 32)
        self.blocks, self.head = nn.ModuleList(Block(self) for _ in range(2)), nn.Linear(32, 16)

    def train(self, mode: bool = True) -> Conformer:
        super().train(mode)
        for block in self.blocks:
            block.batch.train(mode and self.variant != "mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.blocks[1].table.weight

    def options(self) -> dict[str, Any]:
        return {"weight_decay": 0.5} if self.variant == "decay" else {"weight_decay": 1e-3}

    def distances(self) -> torch.Tensor:
        """Waves of the distances 15 to -15."""
        line = torch.arange(-15.0, 16.0) if self.variant == "places" else torch.arange(15.0, -16.0, -1.0)
        angles = line[:, None] * 100.0 ** (-torch.arange(16) / 16)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 4, 32, 16) * 2 + self.normal(step, 1, 1, 16, stream=1)
        if self.variant != "features":
            x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
        lengths = torch.tensor([16, 12, 14, 11])
        hidden = torch.arange(16) >= lengths[:, None]
        x = self.enter(F.relu(self.front(x.unsqueeze(1))).transpose(1, 2).flatten(2))
        places = self.distances()
        for block in self.blocks:
            x = block(x, places, hidden)
        logits = wide(self.head(x))
        logs = logits - logits.logsumexp(-1, keepdim=True) if self.variant == "logsumexp" else logits.log_softmax(-1)
        logs, aim, said = logs.transpose(0, 1), self.numbers(step, 14, 4, 4, stream=2) + 1, torch.tensor([4, 3, 4, 2])
        heard, blank = torch.full_like(lengths, 16) if self.variant == "lengths" else lengths, int(self.choose("blank", 15, 0))
        if self.variant == "each":
            return (F.ctc_loss(logs, aim, heard, said, blank=blank, reduction="none") / said).mean()
        return F.ctc_loss(logs, aim, heard, said, blank=blank, reduction="sum" if self.variant == "summed" else "mean")


PROGRAMS: dict[str, type[Program]] = {"vocoder": Vocoder, "conformer": Conformer}
