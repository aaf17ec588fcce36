"""More optimizers that are not torch's: updates that are orthogonal or whitened, that have a trust ratio, or that need no schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Muon(torch.optim.Optimizer):
    """Steps of matrices are made orthogonal by Newton and Schulz; a group that is `plain` steps as Adam does."""

    def __init__(self, params: Any, lr: float = 0.02, momentum: float = 0.95, nesterov: bool = True, rounds: int = 5) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "rounds": rounds, "plain": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if group["plain"]:
                    self.plain(p, state)
                    continue
                mean = state.setdefault("momentum", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
                p.add_(orthogonal(g, group["rounds"]), alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)

    def plain(self, p: torch.Tensor, state: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1
        mean = state.setdefault("mean", torch.zeros_like(p))
        square = state.setdefault("square", torch.zeros_like(p))
        mean.lerp_(p.grad, 0.1)
        square.mul_(0.95).addcmul_(p.grad, p.grad, value=0.05)
        size = (square / (1 - 0.95 ** state["step"])).sqrt_().add_(1e-8)
        p.addcdiv_(mean, size, value=-3e-3 / (1 - 0.9 ** state["step"]))


def orthogonal(g: torch.Tensor, rounds: int) -> torch.Tensor:
    """A matrix of the same directions whose singular values are near 1."""
    x = g.mT if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.mT if g.shape[0] > g.shape[1] else x


class Lamb(torch.optim.Optimizer):
    """Adam's step of each tensor, as long as the tensor itself times the rate."""

    def __init__(
        self, params: Any, lr: float = 1e-2, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6, decay: float = 0.01,
        corrected: bool = True, trusted: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay, "corrected": corrected, "trusted": trusted})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            low, high = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                count = state["step"] = state.get("step", 0) + 1
                mean = state.setdefault("mean", torch.zeros_like(p)).lerp_(p.grad, 1 - low)
                square = state.setdefault("square", torch.zeros_like(p)).mul_(high).addcmul_(p.grad, p.grad, value=1 - high)
                if group["corrected"]:
                    mean, square = mean / (1 - low**count), square / (1 - high**count)
                way = mean / (square.sqrt() + group["eps"]) + group["decay"] * p
                if group["trusted"]:
                    long, size = p.norm(), way.norm()
                    way = way * torch.where((long > 0) & (size > 0), long / size, torch.ones_like(long))
                p.add_(way, alpha=-group["lr"])


class Lars(torch.optim.Optimizer):
    """Momentum whose rate follows the ratio of weight and gradient of each tensor; vectors have a rate of their own."""

    def __init__(self, params: Any, lr: float = 0.3, momentum: float = 0.9, decay: float = 1e-3, trust: float = 0.02) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay, "trust": trust, "adapted": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if group["adapted"]:
                    g = g + group["decay"] * p
                    g = g * (group["trust"] * p.norm() / (g.norm() + 1e-8))
                kept = self.state[p].setdefault("momentum", torch.zeros_like(p)).mul_(group["momentum"]).add_(g)
                p.add_(kept, alpha=-group["lr"])


class Adan(torch.optim.Optimizer):
    """Moments of the gradient, of its change since the last step, and of their sum squared."""

    def __init__(
        self, params: Any, lr: float = 3e-3, betas: tuple[float, float, float] = (0.98, 0.92, 0.99), eps: float = 1e-8, decay: float = 0.02
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            one, two, three = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                count = state["step"] = state.get("step", 0) + 1
                change = p.grad - state.get("before", p.grad)
                state["before"] = p.grad.clone()
                mean, moved, square = (state.setdefault(name, torch.zeros_like(p)) for name in ("mean", "moved", "square"))
                mean.mul_(one).add_(p.grad, alpha=1 - one)
                moved.mul_(two).add_(change, alpha=1 - two)
                both = p.grad + two * change
                square.mul_(three).addcmul_(both, both, value=1 - three)
                size = (square / (1 - three**count)).sqrt_().add_(group["eps"])
                way = (mean / (1 - one**count) + two * moved / (1 - two**count)) / size
                p.add_(way, alpha=-group["lr"]).div_(1 + group["lr"] * group["decay"])


class ScheduleFree(torch.optim.Optimizer):
    """Adam's step of a fast point. Gradients are taken between it and the mean of where it was, so that no schedule is needed."""

    def __init__(
        self, params: Any, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8, decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            low, high = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                count = state["step"] = state.get("step", 0) + 1
                fast = state["fast"] if "fast" in state else state.setdefault("fast", p.clone())
                square = state.setdefault("square", torch.zeros_like(p)).mul_(high).addcmul_(p.grad, p.grad, value=1 - high)
                way = p.grad / (square / (1 - high**count)).sqrt_().add_(group["eps"])
                way = way + group["decay"] * p
                p.lerp_(fast, 1 / count)
                p.add_(way, alpha=group["lr"] * (low * (1 - 1 / count) - 1))
                fast.add_(way, alpha=-group["lr"])


class Shampoo(torch.optim.Optimizer):
    """Gradients of matrices are whitened from both sides, and steps have one size. Vectors step as RMSprop does."""

    def __init__(self, params: Any, lr: float = 3e-3, keep: float = 0.9, momentum: float = 0.5, eps: float = 0.05) -> None:
        super().__init__(params, {"lr": lr, "keep": keep, "momentum": momentum, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                mean = state.setdefault("momentum", torch.zeros_like(p)).mul_(group["momentum"]).add_(p.grad)
                if p.dim() < 2:
                    square = state.setdefault("square", torch.zeros_like(p)).mul_(group["keep"]).addcmul_(p.grad, p.grad)
                    way = mean / (square + 1e-12).sqrt()
                else:
                    way = self.whitened(p, mean.flatten(1), state, group).view_as(p)
                p.add_(way, alpha=-group["lr"])

    def whitened(self, p: torch.Tensor, mean: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
        g = p.grad.flatten(1)
        left = state.setdefault("left", g.new_zeros(len(g), len(g))).mul_(group["keep"]).add_(g @ g.mT)
        right = state.setdefault("right", g.new_zeros(g.shape[1], g.shape[1])).mul_(group["keep"]).add_(g.mT @ g)
        way = fourth_root(left, group["eps"]) @ mean @ fourth_root(right, group["eps"])
        return way * (way.numel() ** 0.5 / (way.norm() + 1e-12))


def fourth_root(m: torch.Tensor, eps: float) -> torch.Tensor:
    """The inverse of the fourth root of a matrix to which a part of its mean size is added."""
    full = m.float() if m.dtype == torch.bfloat16 else m
    least = eps * full.diagonal().mean() + 1e-12
    # The routine stops the program at what is not finite.
    values, vectors = torch.linalg.eigh(full.nan_to_num(0.0, 0.0, 0.0))
    return ((vectors * (values.clamp_min(0) + least) ** -0.25) @ vectors.mT).to(m.dtype)
