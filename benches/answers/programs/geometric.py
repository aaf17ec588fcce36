"""Programs of graphs, equations and flows in time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program
from torch import nn


class GraphAttention(Program):
    """Nodes that weigh their neighbours; edges are a list, or a matrix."""

    mistakes = {"slope": ("argument",), "features": ("structure",), "loops": ("input", "argument", "structure")}
    alike = ("matrix",)

    def build(self) -> None:
        self.maps = nn.ModuleList([nn.Linear(24, 32, bias=False), nn.Linear(32, 32, bias=False)])
        self.ends = nn.ParameterList(torch.randn(2, 2, 16) * 0.3 for _ in range(2))
        self.head = nn.Linear(32, 6)

    def edges(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        linked = self.numbers(step, 10, 40, 40, stream=3) < 1
        if self.variant == "loops":
            linked.fill_diagonal_(False)
            linked[0] = True
        else:
            linked.fill_diagonal_(True)
        return linked.nonzero(as_tuple=True)

    def layer(self, x: torch.Tensor, i: int, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = self.maps[i](x).unflatten(-1, (2, 16))
        left, right = ((h * end).sum(-1) for end in self.ends[i])
        slope = float(self.choose("slope", 0.1, 0.2)) if i else 0.2
        if self.variant == "matrix":
            linked = torch.zeros(40, 40, dtype=torch.bool)
            linked[target, source] = True
            score = F.leaky_relu(left[:, None] + right[None], slope).masked_fill(~linked[..., None], -torch.inf)
            return torch.einsum("tsh,shc->thc", score.softmax(1), h).flatten(1)
        score = F.leaky_relu(left[target] + right[source], slope)
        weight = torch.exp(score - score.detach().max()).to(h.dtype)
        total = torch.zeros_like(left, dtype=h.dtype).index_add(0, target, weight)
        share = weight / total[target]
        return torch.zeros_like(h).index_add(0, target, share.unsqueeze(-1) * h[source]).flatten(1)

    def loss(self, step: int) -> torch.Tensor:
        source, target = self.edges(step)
        x = self.normal(step, 40, 24)
        if self.variant == "features":
            x = x / x.abs().sum(-1, keepdim=True)
        h = F.elu(self.layer(x, 0, source, target))
        return F.cross_entropy(self.head(self.layer(h, 1, source, target)).float(), self.numbers(step, 6, 40))


class Equation(Program):
    """A network that solves a differential equation; the loss holds its second derivatives."""

    mistakes = {"coefficient": ("argument",), "points": ("input",), "unloaded": ("input",)}
    alike = ("squares",)

    def build(self) -> None:
        self.body = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def forgotten(self) -> nn.Parameter:
        return self.body[2].weight

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 48, 2, stream=int(self.choose("points", 5, 0))).requires_grad_()
        u = self.body(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        second = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)[0][:, 0]
        gap = first[:, 1] - self.choose("coefficient", 0.5, 0.1) * second
        edge, aim = self.body(self.normal(step, 16, 2, stream=1)), self.normal(step, 16, 1, stream=2).sin()
        if self.variant == "squares":
            return gap.square().mean() + (edge - aim).square().mean()
        return F.mse_loss(gap, torch.zeros_like(gap)) + F.mse_loss(edge, aim)


class Flow(Program):
    """A field integrated by Runge and Kutta's fourth order."""

    optimizers = ("sgd",)
    mistakes = {"beta": ("argument",), "pace": ("argument",), "nesterov": ("optimizer", "argument")}
    alike = ("ordered",)

    def build(self) -> None:
        beta = self.choose("beta", 2.0, 1.0)
        self.field = nn.Sequential(nn.Linear(16, 48), nn.Softplus(beta), nn.Linear(48, 16), nn.Tanh())

    def options(self) -> dict[str, float]:
        return {"nesterov": True} if self.variant == "nesterov" else {}

    def loss(self, step: int) -> torch.Tensor:
        x, by = self.normal(step, 40, 16), float(self.choose("pace", 0.3, 0.25))
        for _ in range(3):
            a = self.field(x)
            b = self.field(x + 0.5 * by * a)
            c = self.field(x + 0.5 * by * b)
            d = self.field(x + by * c)
            if self.variant == "ordered":
                x = x + (a + d + (b + c) * 2) * (by / 6)
            else:
                x = x + by / 6 * (a + 2 * b + 2 * c + d)
        return F.mse_loss(x, self.normal(step, 40, 16, stream=1))


PROGRAMS: dict[str, type[Program]] = {"graph_attention": GraphAttention, "equation": Equation, "flow": Flow}
