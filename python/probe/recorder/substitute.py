"""Replaces what modules are given by what another dump recorded there: whatever still differs behind them is their own.

Changes the run, like `perturb`, and only on request.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from probe.messages import say_once
from probe.private.guards import without_functions
from probe.replay.recorded import NotReplayed, Part, Recording
from probe.settings import Substitute


class Substitution:
    """Gives the tensors of a dump to the module calls that the settings name."""

    def __init__(self, rule: Substitute, rank: int) -> None:
        """Raises ValueError if the dump cannot be read."""
        self._rule = rule
        self._rank = rank
        self._recording = Recording(rule.dump)
        self._part: Part | None = None
        #: Calls of each module so far, apart for those that a backward pass makes again.
        self._calls: dict[tuple[str, bool], int] = {}
        #: Calls that were given tensors of the dump.
        self._given: set[str] = set()
        #: Tensors replaced so far.
        self._tensors = 0

    def begin_step(self, step: int) -> None:
        """Takes the step of the dump with this number."""
        self._calls.clear()
        self._part = None
        if step in self._rule.steps and self._rank in self._rule.ranks:
            self._part = next(self._recording.parts([range(step, step + 1)], [range(self._rank, self._rank + 1)]), None)
            if self._part is None:
                say_once(f"substitute: {self._rule.dump} has no step {step} of rank {self._rank}, so its modules keep their own inputs")

    def before(self, stem: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Returns the arguments to call a module with, None for those it has; `kwargs` are replaced in place."""
        if self._part is None:
            return None
        key = stem, torch._C._current_graph_task_id() != -1
        number = self._calls[key] = self._calls.get(key, -1) + 1
        name = f"{stem}.forward.{number}"
        if name not in self._rule.modules:
            return None
        try:
            recorded = self._part.inputs(name)
        except NotReplayed as reason:
            say_once(f"substitute: {name} keeps its own inputs: {reason}")
            return None
        self._given.add(name)
        with _disable_current_modes(), without_functions():
            for key_, value in kwargs.items():
                kwargs[key_] = self._replaced(name, f"kwarg.{key_}", value, recorded)
            return tuple(self._replaced(name, f"input.{place}", value, recorded) for place, value in enumerate(args))

    def lines(self) -> list[str]:
        """Returns what was done, and what was not, a line each."""
        missed = [name for name in self._rule.modules if name not in self._given]
        done = f"this run was given {self._tensors} tensors of {self._rule.dump} as inputs of {len(self._given)} modules; it is not a run of its own"
        return [done] * bool(self._given) + [f"substitute: {name} was not called in a step that was recorded" for name in missed]

    def _replaced(self, name: str, path: str, value: Any, recorded: dict[str, torch.Tensor]) -> Any:
        if type(value) in (list, tuple):
            return type(value)(self._replaced(name, f"{path}.{place}", item, recorded) for place, item in enumerate(value))
        if type(value) is dict:
            return {key: self._replaced(name, f"{path}.{key}", item, recorded) for key, item in value.items()}
        new = recorded.get(path) if isinstance(value, torch.Tensor) else None
        if new is None:
            return value
        if new.shape != value.shape:
            say_once(f"substitute: {name} keeps its own {path}: it has the shape {list(value.shape)} here and {list(new.shape)} in {self._rule.dump}")
            return value
        self._tensors += 1
        new = new.to(value.device, value.dtype)
        return _Given.apply(value, new) if value.requires_grad and torch.is_grad_enabled() else new


class _Given(torch.autograd.Function):
    """Passes a tensor on in the place of another, to which the gradient goes as before."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return new.view_as(new)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return gradient, None
