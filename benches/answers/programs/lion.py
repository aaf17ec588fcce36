"""An optimizer that is not torch's: steps by the sign of a momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Lion(torch.optim.Optimizer):
    """Steps of one size in the direction of a mix of gradient and momentum."""

    def __init__(self, params: Any, lr: float = 1e-3, keep: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "keep": keep})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.add_(torch.sign(state.lerp(p.grad, 1 - group["keep"])), alpha=-group["lr"])
                state.lerp_(p.grad, 0.01)
