"""Programs that learn from other networks or make them: a student of a teacher, and kernels that a code makes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Student(Program):
    """A small network of patches that is taught by the soft answers and the features of a larger one, which stands still."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "heat": ("structure", "argument"), "square": ("structure", "argument"), "turned": ("structure", "input"), "training": ("argument", "structure"),
        "features": ("structure", "argument"), "layer": ("structure", "input"), "smooth": ("argument",), "eps": ("argument",), "unloaded": ("input",),
        "decay": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("soft targets", "by hand", "cosine by hand", "patches by a product", "two means", "teacher first")

    def build(self) -> None:
        eps = float(self.choose("eps", 1e-2, 1e-5))
        self.teacher = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.LayerNorm(48))
        self.teacher_head = nn.Linear(48, 9)
        self.enter = nn.Conv2d(3, 24, 2, 2)
        self.mix = nn.ModuleList(nn.Sequential(nn.LayerNorm(24, eps=eps), nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)) for _ in range(2))
        self.across = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.project = nn.Linear(24, 48)
        self.head = nn.Linear(24, 9)
        for parameter in [*self.teacher.parameters(), *self.teacher_head.parameters()]:
            parameter.requires_grad_(False)

    def forgotten(self) -> nn.Parameter:
        return self.teacher[3].weight

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.3} if self.variant == "decay" else {}

    def teach(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            deep = self.teacher[:3](patches) if self.variant == "layer" else self.teacher(patches)
            return deep, self.teacher_head(deep.mean(1))

    def learn(self, x: torch.Tensor, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.variant == "patches by a product":
            h = F.linear(patches, self.enter.weight.flatten(1), self.enter.bias)
        else:
            h = self.enter(x).flatten(2).mT
        for across, mix in zip(self.across, self.mix, strict=True):
            h = h + across(h.mT).mT
            h = h + mix(h)
        return h, self.head(h.mean(1))

    def loss(self, step: int) -> torch.Tensor:
        x, labels = self.normal(step, 8, 3, 8, 8), self.numbers(step, 9, 8)
        patches = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(8, 16, 12)
        if self.variant == "teacher first":
            deep, soft = self.teach(patches)
            h, logits = self.learn(x, patches)
        else:
            h, logits = self.learn(x, patches)
            deep, soft = self.teach(patches)
        heat = float(self.choose("heat", 2.0, 4.0))
        mine, theirs = wide(logits) / heat, wide(soft) / heat
        if self.variant == "turned":
            mine, theirs = theirs, mine
        if self.variant == "soft targets":
            lost = F.cross_entropy(mine, theirs.softmax(-1)) + (theirs.softmax(-1) * theirs.log_softmax(-1)).sum(-1).mean()
        elif self.variant == "by hand":
            lost = (theirs.softmax(-1) * (theirs.log_softmax(-1) - mine.log_softmax(-1))).sum() / 8
        else:
            lost = F.kl_div(mine.log_softmax(-1), theirs.softmax(-1), reduction="batchmean")
        lost = lost if self.variant == "square" else lost * heat**2
        hard = F.cross_entropy(wide(logits), labels, label_smoothing=0.1 if self.variant == "smooth" else 0.0)
        near, far = wide(self.project(F.dropout(h, 0.3, self.variant == "training"))), wide(deep)
        if self.variant == "features":
            return 0.7 * lost + 0.3 * hard
        if self.variant == "cosine by hand":
            alike = (near * far).sum(-1) / (near.norm(dim=-1) * far.norm(dim=-1))
        else:
            alike = F.cosine_similarity(near, far, dim=-1)
        apart = 1 - (alike.mean(1).mean() if self.variant == "two means" else alike.mean())
        return 0.7 * lost + 0.3 * hard + 0.5 * apart


class Hyper(Program):
    """Kernels of a convolution that a code of each picture makes, and a gain by channels."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "norm": ("structure", "argument"), "groups": ("structure", "input", "argument"), "code": ("structure", "input"), "gain": ("structure", "argument"),
        "dilated": ("argument", "structure"), "stride": ("argument", "structure"), "slope": ("argument",), "channels": ("structure", "argument"),
        "delta": ("argument",), "unloaded": ("input",), "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("by picture", "unfolded", "norm by hand", "gain by a product", "one hot", "huber by hand")

    def build(self) -> None:
        self.codes = nn.Embedding(10, 16)
        self.make = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8 * 6 * 9))
        self.enter = nn.Conv2d(3, 6, 3, padding=1)
        self.gain = nn.Linear(16, 8)
        self.norm = nn.GroupNorm(4, 8)
        self.down = nn.Conv2d(8, 12, 3, padding=1, stride=1 if self.variant == "stride" else 2)
        self.out = nn.Linear(12, 5)

    def forgotten(self) -> nn.Parameter:
        return self.make[0].weight

    def options(self) -> dict[str, object]:
        return {"betas": (0.7, 0.999)} if self.variant == "betas" else {}

    def convolved(self, h: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
        """Each of 8 pictures with the kernel of its code."""
        spread = 2 if self.variant == "dilated" else 1
        if self.variant == "by picture":
            return torch.cat([F.conv2d(h[i : i + 1], kernels[i], padding=1) for i in range(8)])
        if self.variant == "unfolded":
            return (kernels.flatten(2) @ F.unfold(h, 3, padding=1)).view(8, 8, 8, 8)
        if self.variant == "groups":
            kernels = kernels.roll(1, 0)
        return F.conv2d(h.reshape(1, 48, 8, 8), kernels.reshape(64, 6, 3, 3), padding=spread, dilation=spread, groups=8).view(8, 8, 8, 8)

    def loss(self, step: int) -> torch.Tensor:
        x, which, wanted = self.normal(step, 8, 3, 8, 8), self.numbers(step, 10, 8), self.normal(step, 8, 5, stream=1)
        code = F.one_hot(which, 10).to(x.dtype) @ self.codes.weight if self.variant == "one hot" else self.codes(which)
        kernels = self.make(code).view(8, 8, 6, 3, 3)
        if self.variant == "norm by hand":
            kernels = kernels / (kernels.square().sum((2, 3, 4), keepdim=True).sqrt() + 1e-6)
        elif self.variant != "norm":
            kernels = kernels / (kernels.flatten(2).norm(dim=-1)[..., None, None, None] + 1e-6)
        h = F.leaky_relu(self.enter(x), 0.01 if self.variant == "slope" else 0.2)
        h = self.convolved(h, kernels)
        gain = 1 + (self.gain(code.detach()) if self.variant == "code" else self.gain(code))
        if self.variant == "gain by a product":
            h = torch.einsum("bchw,bc->bchw", h, gain)
        elif self.variant != "gain":
            h = h * gain[:, :, None, None]
        h = F.leaky_relu(self.down(F.silu(self.norm(h))), 0.2)
        made = wide(self.out(h.amax((2, 3)) if self.variant == "channels" else h.mean((2, 3))))
        delta = float(self.choose("delta", 0.3, 1.0))
        if self.variant == "huber by hand":
            off = (made - wide(wanted)).abs()
            return torch.where(off < delta, 0.5 * off.square(), delta * (off - 0.5 * delta)).mean()
        return F.huber_loss(made, wide(wanted), delta=delta)


PROGRAMS = {"student": Student, "hyper": Hyper}
