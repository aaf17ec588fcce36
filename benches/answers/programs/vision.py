"""Programs of images: contrast, a mean teacher, a detector, latents that look at patches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from programs.program import Program
from torch import nn


class Contrast(Program):
    """Two views of each image attract one another; all others repel."""

    optimizers = ("sgd",)
    mistakes = {"temperature": ("argument",), "mask": ("input", "argument"), "unloaded": ("input",)}
    alike = ("cosine",)

    def build(self) -> None:
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.project = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 24))

    def forgotten(self) -> nn.Parameter:
        return self.body[3].weight

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 12, 3, 16, 16)
        z = self.project(self.body(torch.cat([x, x + 0.3 * self.normal(step, 12, 3, 16, 16, stream=1)])))
        if self.variant == "cosine":
            alike = F.cosine_similarity(z[:, None], z[None], dim=-1)
        else:
            z = F.normalize(z, dim=-1)
            alike = z @ z.T
        alike = alike / self.choose("temperature", 0.25, 0.2)
        beside = int(self.choose("mask", 1, 0))
        hidden = torch.diag(torch.ones(24 - beside), beside) > 0
        return F.cross_entropy(alike.masked_fill(hidden, -1e4).float(), torch.arange(24).roll(12))


class Teacher(Program):
    """A student that agrees with a moving average of itself."""

    mistakes = {"decay": ("argument", "optimizer", "numerics"), "late start": ("input",), "mode": ("argument", "structure")}
    alike = ("lerp",)

    def build(self) -> None:
        self.student, self.teacher = self.network(), self.network()
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)
        if self.variant == "late start":
            with torch.no_grad():
                self.teacher[3].weight.mul_(-1)

    def network(self) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish(), nn.Conv2d(16, 24, 3, 2, 1), nn.ELU(), nn.Flatten(),
            nn.Linear(384, 10),
        )  # fmt: skip

    def loss(self, step: int) -> torch.Tensor:
        x, y = self.normal(step, 12, 3, 16, 16), self.numbers(step, 10, 12)
        self.teacher.train(self.variant != "mode")
        out, aim = self.student(x), self.teacher(x + 0.1 * self.normal(step, 12, 3, 16, 16, stream=1))
        return F.cross_entropy(out.float(), y) + F.mse_loss(out.softmax(-1), aim.softmax(-1).detach())

    def after_update(self) -> None:
        keep = float(self.choose("decay", 0.9, 0.99))
        with torch.no_grad():
            for mine, theirs in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                if self.variant == "lerp":
                    mine.lerp_(theirs, 1 - keep)
                else:
                    mine.mul_(keep).add_(theirs, alpha=1 - keep)


class Detector(Program):
    """A pyramid of features, a focal loss of classes and a smooth one of boxes."""

    mistakes = {"beta": ("argument",), "upsampling": ("argument", "structure"), "anchors": ("input", "argument")}
    alike = ("halves",)

    def build(self) -> None:
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())
        self.low = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32), nn.ReLU())
        self.side, self.top = nn.Conv2d(16, 24, 1), nn.Conv2d(32, 24, 1)
        self.smooth, self.classes, self.boxes = nn.Conv2d(24, 24, 3, 1, 1), nn.Conv2d(24, 5, 1), nn.Conv2d(24, 4, 1)

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        x, y = self.normal(step, 4, 3, 32, 32), self.numbers(step, 5, 4, 16, 16)
        aim = self.normal(step, 4, 4, 16, 16, stream=1)
        if self.variant == "halves":
            yield 0.5 * self.one(x[:2], y[:2], aim[:2]), None
            yield 0.5 * self.one(x[2:], y[2:], aim[2:]), 0
        else:
            yield self.one(x, y, aim), 0

    def one(self, x: torch.Tensor, y: torch.Tensor, aim: torch.Tensor) -> torch.Tensor:
        high = self.stem(x)
        mode = self.choose("upsampling", "bilinear", "nearest")
        merged = self.side(high) + F.interpolate(self.top(self.low(high)), scale_factor=2, mode=mode)
        found = F.relu(self.smooth(merged))
        sure = F.one_hot(y, 5).permute(0, 3, 1, 2).to(found.dtype)
        logits = self.classes(found)
        right = torch.where(sure > 0, logits.sigmoid(), 1 - logits.sigmoid())
        focal = ((1 - right).pow(2) * F.binary_cross_entropy_with_logits(logits, sure, reduction="none")).mean()
        grid = torch.arange(16, dtype=found.dtype) * self.choose("anchors", 1.0, 0.5)
        anchors = torch.stack(torch.meshgrid(grid, grid, indexing="ij")).repeat(2, 1, 1) / 16
        return focal + F.smooth_l1_loss(self.boxes(found) + anchors, aim, beta=self.choose("beta", 0.5, 1.0))


class Latents(Program):
    """A few latents that look at many patches, masked, and at each other."""

    optimizers = ("fused",)
    mistakes = {"padding": ("input", "argument", "structure"), "heads": ("argument", "structure"), "unloaded": ("input",)}
    alike = ("formula",)

    def build(self) -> None:
        self.patches, self.latents = nn.Linear(24, 48), nn.Parameter(torch.randn(8, 48))
        self.ask, self.given, self.back = nn.Linear(48, 48), nn.Linear(48, 96), nn.Linear(48, 48)
        self.first, self.last, self.norm = nn.LayerNorm(48), nn.LayerNorm(48), nn.LayerNorm(48)
        self.mlp, self.head = nn.Sequential(nn.Linear(48, 128), nn.GELU("tanh"), nn.Linear(128, 48)), nn.Linear(48, 10)

    def forgotten(self) -> nn.Parameter:
        return self.latents

    def attend(self, x: torch.Tensor, y: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
        heads = self.choose("heads", 2, 4)
        q, (k, v) = self.ask(x), self.given(y).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        if self.variant == "formula":
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            out = (scores if keep is None else scores.masked_fill(~keep, -torch.inf)).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.back(out.transpose(1, 2).flatten(2))

    def loss(self, step: int) -> torch.Tensor:
        x, y = self.patches(self.normal(step, 6, 30, 24)), self.numbers(step, 10, 6)
        lengths = torch.tensor([30, 24, 28, 30, 20, 27])
        if self.variant == "padding":
            lengths = lengths.clamp_max(26)
        keep = (torch.arange(30) < lengths[:, None])[:, None, None, :]
        z = self.latents.expand(6, -1, -1)
        z = z + self.attend(self.first(z), x, keep)
        z = z + self.attend(self.norm(z), self.norm(z), None)
        z = z + self.mlp(self.last(z))
        return F.cross_entropy(self.head(z.mean(1)).float(), y)


PROGRAMS: dict[str, type[Program]] = {
    "contrast": Contrast, "teacher": Teacher, "detector": Detector, "latents": Latents,
}  # fmt: skip
