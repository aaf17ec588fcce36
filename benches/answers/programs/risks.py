"""Programs of statistics: how long patients stay, and a field whose neighbours a network chooses."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Survival(Program):
    """Risks by the order in which patients were lost, and the time of loss itself. Some leave before it is known."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "order": ("structure", "argument", "input"), "censored": ("structure", "input"), "share": ("structure", "argument", "input"), "alpha": ("argument",),
        "eps": ("argument",), "scale": ("argument",), "times": ("structure",), "half": ("structure", "argument"), "unloaded": ("input",),
        "decay": ("optimizer", "argument"), "weights": ("structure", "argument"),
    }  # fmt: skip
    alike = ("turned", "by a mask", "selected", "error function", "softplus by hand", "both heads")

    def build(self) -> None:
        self.enter = nn.Linear(10, 24)
        self.kinds = nn.Embedding(5, 24)
        self.norm = nn.BatchNorm1d(24, eps=float(self.choose("eps", 1e-2, 1e-5)))
        self.deep = nn.Linear(24, 16)
        self.risk = nn.Linear(16, 1, bias=False)
        self.time = nn.Linear(16, 2)

    def forgotten(self) -> nn.Parameter:
        return self.deep.weight

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.3} if self.variant == "decay" else {}

    def heads(self, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.variant == "both heads":
            bias = F.pad(self.time.bias, (1, 0))
            return F.linear(h, torch.cat([self.risk.weight, self.time.weight]), bias).split((1, 2), -1)
        return self.risk(h), self.time(h)

    def ordered(self, risk: torch.Tensor, days: torch.Tensor, lost: torch.Tensor) -> torch.Tensor:
        """The partial likelihood: each who was lost, among those who were still there."""
        if self.variant == "by a mask":
            there = days[None] >= days[:, None]
            total = risk.expand(24, 24).masked_fill(~there, -torch.inf).logsumexp(1)
        else:
            order = days.argsort(descending=self.variant not in ("order", "turned"))
            risk, lost = risk[order], lost[order]
            total = risk.flip(0).logcumsumexp(0).flip(0) if self.variant == "turned" else risk.logcumsumexp(0)
        if self.variant == "censored":
            return (total - risk).mean()
        if self.variant == "selected":
            return (total - risk)[lost].mean()
        return ((total - risk) * lost).sum() / (24 if self.variant == "share" else lost.sum())

    def loss(self, step: int) -> torch.Tensor:
        x, kinds = self.normal(step, 24, 10), self.numbers(step, 5, 24)
        days = 0.1 + wide(self.normal(step, 24, stream=1)).square()
        lost = self.numbers(step, 3, 24, stream=2) > 0
        h = F.elu(self.norm(self.enter(x) + self.kinds(kinds)), alpha=0.5 if self.variant == "alpha" else 1.0)
        risk, time = self.heads(F.silu(self.deep(h)))
        risk, (middle, spread) = wide(risk).squeeze(-1), wide(time).unbind(-1)
        sharp = float(self.choose("scale", 2.0, 1.0))
        if self.variant == "softplus by hand":
            spread = torch.log1p(spread.exp()) + 0.1
        else:
            spread = F.softplus(spread, beta=sharp) + 0.1
        z = ((days.log1p() if self.variant == "times" else days.log()) - middle) / spread
        known = (1.0 if self.variant == "half" else 0.5) * z.square() + spread.log()
        if self.variant == "error function":
            unknown = -(0.5 * torch.erfc(z / math.sqrt(2))).log()
        else:
            unknown = -torch.special.log_ndtr(-z)
        timed = torch.where(lost, known, unknown).mean()
        return self.ordered(risk, days, lost) + (0.5 if self.variant == "weights" else 0.25) * timed


class Kernel(Program):
    """A Gaussian process over what a network makes of its inputs; eight small fields in a batch."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "length": ("structure", "argument"), "logs": ("structure", "argument"), "turned": ("argument", "structure", "input"), "family": ("structure",),
        "centred": ("structure",), "jitter": ("argument",), "noise": ("structure", "argument"), "slope": ("argument", "structure"), "unloaded": ("input",),
        "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("by products", "solved twice", "by a distribution", "determinant", "one by one", "diagonal")

    def build(self) -> None:
        self.enter = nn.Linear(6, 20)
        self.out = nn.Linear(20, 3)
        self.length, self.size, self.noise = (nn.Parameter(torch.full((), value)) for value in (0.3, 0.1, -1.0))

    def forgotten(self) -> nn.Parameter:
        return self.enter.weight

    def options(self) -> dict[str, object]:
        return {"betas": (0.7, 0.999)} if self.variant == "betas" else {}

    def covariance(self, z: torch.Tensor) -> torch.Tensor:
        if self.variant == "by products":
            squares = z.square().sum(-1)
            apart = (squares[..., :, None] + squares[..., None, :] - 2 * z @ z.mT).clamp(min=0)
        else:
            apart = (z[..., :, None, :] - z[..., None, :, :]).square().sum(-1)
        length, size, noise = self.length.exp(), self.size.exp(), self.noise.exp()
        near = apart / (length if self.variant == "length" else length.square())
        if self.variant == "family":
            near = (1 + near) * (-near).exp()
        else:
            near = (-0.5 * near).exp()
        noise = (noise.square() if self.variant == "noise" else noise) + (1e-2 if self.variant == "jitter" else 1e-4)
        if self.variant == "diagonal":
            return size * near + torch.diag_embed(noise.expand(12))
        return size * near + noise * torch.eye(12, dtype=near.dtype)

    def unlikely(self, cov: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Minus the logarithm of the likelihood of the values of each field, but for a constant."""
        if self.variant == "by a distribution":
            found = torch.distributions.MultivariateNormal(torch.zeros(12), covariance_matrix=cov, validate_args=False)
            return -found.log_prob(y) - 6 * math.log(2 * math.pi)
        if self.variant == "determinant":
            return 0.5 * (y[..., None, :] @ torch.linalg.solve(cov, y[..., None])).flatten(-3) + 0.5 * torch.linalg.slogdet(cov)[1][..., None]
        root = torch.linalg.cholesky_ex(cov)[0]
        logs = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if self.variant == "solved twice":
            return 0.5 * (y * torch.cholesky_solve(y[..., None], root).squeeze(-1)).sum(-1) + logs
        if self.variant == "turned":
            half = torch.linalg.solve_triangular(root.mT, y[..., None], upper=True)
        else:
            half = torch.linalg.solve_triangular(root, y[..., None], upper=False)
        return 0.5 * half.square().sum((-2, -1)) + (0.5 if self.variant == "logs" else 1.0) * logs

    def loss(self, step: int) -> torch.Tensor:
        x, y = self.normal(step, 8, 12, 6), wide(self.normal(step, 8, 12, stream=1))
        z = wide(self.out(F.gelu(self.enter(x), approximate="tanh" if self.variant == "slope" else "none")))
        y = y if self.variant == "centred" else y - y.mean(-1, keepdim=True)
        if self.variant == "one by one":
            return torch.stack([self.unlikely(self.covariance(z[i]), y[i]) for i in range(8)]).mean()
        return self.unlikely(self.covariance(z), y).mean()


PROGRAMS = {"survival": Survival, "kernel": Kernel}
