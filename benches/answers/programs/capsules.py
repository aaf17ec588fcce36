"""Programs that explain what they see by few parts: capsules that agree, and few of many directions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Capsules(Program):
    """Small parts vote for larger ones in three rounds. The one that is right draws the picture again."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "rounds": ("structure",), "axis": ("argument",), "squash": ("argument",), "margin": ("argument",), "down": ("argument",),
        "square": ("structure", "argument"), "dilated": ("argument", "structure"), "masked": ("structure", "input"), "drawn": ("argument",),
        "unloaded": ("input",), "eps": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("votes by a product", "rounds by sums", "norm by hand", "clamped", "chosen", "votes apart")

    def build(self) -> None:
        self.enter = nn.Conv2d(1, 16, 3, padding=1)
        spread = 2 if self.variant == "dilated" else 1
        self.parts = nn.Conv2d(16, 16, 3, stride=2, padding=spread, dilation=spread)
        self.votes = nn.Parameter(0.2 * torch.randn(32, 5, 8, 6))
        self.draw = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 64), nn.Sigmoid())

    def forgotten(self) -> nn.Parameter:
        return self.votes

    def options(self) -> dict[str, float]:
        return {"eps": 1e-3} if self.variant == "eps" else {}

    def squash(self, s: torch.Tensor) -> torch.Tensor:
        if self.variant == "norm by hand":
            size = (s * s).sum(-1, keepdim=True).sqrt()
        else:
            size = s.norm(dim=-1, keepdim=True)
        return size.square() / ((0.5 if self.variant == "squash" else 1.0) + size.square()) * s / (size + 1e-7)

    def agree(self, votes: torch.Tensor) -> torch.Tensor:
        """Votes of shape (8, 32, 5, 6) become five capsules of six numbers."""
        lean = votes.new_zeros(8, 32, 5)
        rounds = 2 if self.variant == "rounds" else 3
        for turn in range(rounds):
            weight = lean.softmax(1 if self.variant == "axis" else 2)
            if self.variant == "rounds by sums":
                capsules = self.squash(torch.einsum("bij,bijk->bjk", weight, votes))
            else:
                capsules = self.squash((weight[..., None] * votes).sum(1))
            if turn + 1 < rounds:
                lean = lean + (votes * capsules[:, None]).sum(-1)
        return capsules

    def loss(self, step: int) -> torch.Tensor:
        x, labels = self.normal(step, 8, 1, 8, 8), self.numbers(step, 5, 8)
        h = F.relu(self.enter(x))
        h = self.parts(h)
        parts = self.squash(wide(h).view(8, 2, 8, 16).transpose(2, 3).reshape(8, 32, 8))
        table = wide(self.votes)
        if self.variant == "votes by a product":
            votes = (parts[:, :, None, None] @ table).squeeze(-2)
        elif self.variant == "votes apart":
            votes = torch.stack([torch.einsum("bid,idk->bik", parts, table[:, j]) for j in range(5)], 2)
        else:
            votes = torch.einsum("bid,ijdk->bijk", parts, table)
        capsules = self.agree(votes)
        sizes = capsules.norm(dim=-1)
        right = F.one_hot(labels, 5).to(sizes.dtype)
        upper = float(self.choose("margin", 0.8, 0.9))
        bound = (lambda v: v.clamp(min=0)) if self.variant == "clamped" else F.relu
        below, above = bound(upper - sizes), bound(sizes - 0.1)
        if self.variant != "square":
            below, above = below.square(), above.square()
        lost = (right * below + (0.25 if self.variant == "down" else 0.5) * (1 - right) * above).sum(-1).mean()
        if self.variant == "masked":
            shown = capsules
        elif self.variant == "chosen":
            shown = torch.where(right[..., None] > 0, capsules, 0.0)
        else:
            shown = capsules * right[..., None]
        drawn = wide(self.draw(shown.flatten(1).to(x.dtype)))
        return lost + (0.05 if self.variant == "drawn" else 0.5) * F.mse_loss(drawn, wide(x).flatten(1).sigmoid())


class Dictionary(Program):
    """Few of many directions say what a network felt; those that are long unused explain what is left."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "few": ("argument", "structure"), "bias": ("structure",), "directions": ("structure", "optimizer", "input"), "spare": ("argument", "structure"),
        "signs": ("structure",), "spread": ("structure",), "unloaded": ("input",), "betas": ("optimizer", "argument"), "parallel": ("structure", "optimizer"),
        "spare weight": ("argument",), "left": ("structure", "input"),
    }  # fmt: skip
    alike = ("by rows", "by a bound", "error by hand", "normalised", "linear", "spare by a mask")

    def build(self) -> None:
        self.encode = nn.Linear(24, 96)
        self.decode = nn.Parameter(1.2 * F.normalize(torch.randn(96, 24), dim=1))
        self.middle = nn.Parameter(0.1 * torch.randn(24))
        self.register_buffer("unused", torch.arange(96) % 4 == 0)

    def forgotten(self) -> nn.Parameter:
        return self.encode.weight

    def options(self) -> dict[str, object]:
        return {"betas": (0.7, 0.999)} if self.variant == "betas" else {}

    def largest(self, felt: torch.Tensor, count: int) -> torch.Tensor:
        """Keeps the `count` largest values of each row."""
        if self.variant == "by a bound":
            return torch.where(felt >= felt.topk(count).values[:, -1:], felt, 0.0).relu()
        values, places = felt.topk(count)
        # Of those that were long unused, some are negative.
        values = values if self.variant == "signs" and count == 10 else values.relu()
        return torch.zeros_like(felt).scatter(-1, places, values)

    def said(self, felt: torch.Tensor) -> torch.Tensor:
        if self.variant == "by rows":
            values, places = felt.topk(8)
            return (values.relu()[..., None] * self.decode[places]).sum(1) + self.middle
        sparse = self.largest(felt, 6 if self.variant == "few" else 8)
        return F.linear(sparse, self.decode.T, self.middle) if self.variant == "linear" else sparse @ self.decode + self.middle

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 32, 24) @ self.normal(1000, 24, 24, stream=3) / 5
        felt = self.encode(x if self.variant == "bias" else x - self.middle)
        said = self.said(felt)
        left = wide(x) - wide(said)
        if self.variant == "error by hand":
            lost = left.square().sum() / left.numel()
        else:
            lost = F.mse_loss(wide(said), wide(x))
        lost = lost if self.variant == "spread" else lost / (wide(x) - wide(x).mean(0)).square().mean()
        count = 12 if self.variant == "spare" else 10
        if self.variant == "spare by a mask":
            spare = self.largest(torch.where(self.unused, felt, -1e4), count)
        else:
            spare = self.largest(felt.masked_fill(~self.unused, -torch.inf), count)
        target = left if self.variant == "left" else left.detach()
        return lost + (0.25 if self.variant == "spare weight" else 0.03) * F.mse_loss(wide(spare @ self.decode), target)

    @torch.no_grad()
    def before_update(self) -> None:
        """A direction keeps its length: what of the gradient lies along it is taken away."""
        if self.variant != "parallel":
            along = (self.decode.grad * self.decode).sum(1, keepdim=True)
            self.decode.grad -= along * self.decode

    @torch.no_grad()
    def after_update(self) -> None:
        if self.variant == "normalised":
            self.decode.copy_(F.normalize(self.decode, dim=1))
        elif self.variant != "directions":
            self.decode /= self.decode.norm(dim=1, keepdim=True)


PROGRAMS = {"capsules": Capsules, "dictionary": Dictionary}
