"""Backward values: the gradients of a call's own inputs and outputs, and those of parameters.

The core watches the graph (`probe._core.Gradients`), since each gradient would cost a tenth of a millisecond here. This
gives it the functions of torch that it calls, and puts its hooks on parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from probe import _core
from probe.private import autograd, guards, tensors

if TYPE_CHECKING:
    from probe._core import Recorder


class Gradients:
    """Watches the backward passes of recorded calls."""

    def __init__(self, core: Recorder) -> None:
        self._watching = _core.Gradients(core, {
            "is_grad_enabled": torch.is_grad_enabled,
            "next_sequence": autograd.next_sequence,
            "current_pass": autograd.current_pass,
            "at_end_of_pass": autograd.at_end_of_pass,
            "sum_of": tensors.sum_of,
            "without_functions": guards.without_functions,
        })  # fmt: skip
        self._parameters: list[Any] = []
        #: Notes where the inputs of a call come from; watches what flows back through it; files what is incomplete.
        self.before = self._watching.before
        self.after = self._watching.after
        self.flush = self._watching.flush

    def watch_parameters(self, stem: str, module: torch.nn.Module) -> None:
        """Records the gradients of a module's own parameters each time all of them have arrived."""
        own = {name: p for name, p in module._parameters.items() if p is not None and p.requires_grad}
        if own:
            for parameter, hook in zip(own.values(), self._watching.parameters(stem, list(own))):
                if parameter.is_leaf:
                    self._parameters.append(parameter.register_post_accumulate_grad_hook(hook))

    def forget_parameters(self) -> None:
        """Removes all hooks from the parameters."""
        for handle in self._parameters:
            handle.remove()
        self._parameters.clear()
