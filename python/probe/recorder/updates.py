"""Optimizer steps as ops: their inputs and their results.

    parameter.<name>       a parameter before the step
    input.grad.<name>      its gradient
    input.<state>.<name>   its state before the step, such as `input.exp_avg.layers.0.weight`
    kwarg.<option>         options that affect the numbers, such as `kwarg.lr`; `kwarg.1.lr` for a second group that
    differs
    output.parameter.<name>, output.<state>.<name>   the same after the step

A parameter is named by its path in the model, or, if no model has it, by its group and position: `0.3`.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import Optimizer

from probe import optimizers
from probe.private.guards import without_functions
from probe.private.tensors import memory_of

if TYPE_CHECKING:
    from probe._core import Call, Recorder
    from probe.recorder.modules import Modules

#: Options that choose an implementation, not the numbers: they differ between devices.
_IMPLEMENTATION = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})


def open_update(core: Recorder, name: str, optimizer: Optimizer, names: dict[int, str]) -> Update | None:
    """Opens the record of a step about to run. `names` are paths of parameters by identity. None if it is not
    wanted."""
    with without_functions():
        call = core.open(name)
        if call is None:
            return None
        update = Update(core, call, optimizer, _moved(optimizer, names))
        update.given()
        return update


class Update:
    """One step under way."""

    __slots__ = ("_core", "_optimizer", "_parameters", "call")

    def __init__(self, core: Recorder, call: Call, optimizer: Optimizer, parameters: list[tuple[str, torch.Tensor]]) -> None:
        self.call = call
        self._core, self._optimizer, self._parameters = core, optimizer, parameters

    def given(self) -> None:
        """Adds the inputs of the step."""
        given: list[tuple[str, Any]] = [(f"kwarg.{path}", option) for path, option in _options(self._optimizer)]
        for name, parameter in self._parameters:
            given.append((f"input.grad.{name}", parameter.grad))
            given += ((f"input.{state}.{name}", value) for state, value in self._state(parameter))
        self._core.add(self.call, "input", given)
        self._core.add(self.call, "parameter", [(f"parameter.{name}", parameter) for name, parameter in self._parameters])

    def made(self) -> None:
        """Adds the results of the step."""
        with without_functions():
            made = []
            for name, parameter in self._parameters:
                made.append((f"output.parameter.{name}", parameter))
                made += ((f"output.{state}.{name}", value) for state, value in self._state(parameter))
            # Not every kernel tells torch that it has written.
            self._core.forget(memory_of([value for _, value in made]))
            self._core.add(self.call, "output", made)

    def _state(self, parameter: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the optimizer's tensors for a parameter. Omits step counts: some devices keep them as tensors, some
        do not."""
        # Indexing would create a state for a parameter without one.
        state = self._optimizer.state.get(parameter)
        if isinstance(state, dict):
            for name, value in list(state.items()):
                if isinstance(value, torch.Tensor) and (value.dim() > 0 or parameter.dim() == 0) and name != "step":
                    yield str(name), value


def _moved(optimizer: Optimizer, names: dict[int, str]) -> list[tuple[str, torch.Tensor]]:
    """Returns the parameters that the step will move, by name: those with a gradient, or all if the step itself
    computes gradients."""
    found = [
        (names.get(id(parameter), f"{group}.{index}"), parameter)
        for group, options in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(options["params"])
    ]
    return [(name, parameter) for name, parameter in found if parameter.grad is not None] or found


def _options(optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    """Yields the options of the first group, and those of every other group that differ from it."""
    first: dict[str, Any] = {}
    for group, options in enumerate(optimizer.param_groups):
        for name, value in options.items():
            if name in _IMPLEMENTATION or not _is_plain(value):
                continue
            if group == 0:
                first[name] = value
                yield name, value
            elif name not in first or not _is_equal(first[name], value):
                yield f"{group}.{name}", value


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, torch.Tensor))


def _is_equal(one: Any, other: Any) -> bool:
    # Tensors may be on a device, so they are not compared: they are recorded.
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return type(one) is type(other) and one == other


class Updates:
    """The steps of all optimizers, while a recording is under way."""

    def __init__(self, core: Recorder, modules: Modules, recorded: bool, active: Callable[[], bool]) -> None:
        """Without `recorded`, steps are only scopes of what runs in them. `active` tells whether an iteration is being
        recorded."""
        self._core = core
        self._modules = modules
        self._recorded = recorded
        self._active = active
        self._process = os.getpid()
        #: Step under way: its frame, name and record.
        self._updating: tuple[types.FrameType, str, Update | None] | None = None
        self._handle = optimizers.listen(before=self._enter, aside=self._suspend, after=self._leave)

    def forget(self) -> None:
        """Ends a step under way without its results."""
        self._updating = None

    def remove(self) -> None:
        """Stops listening."""
        self._handle.remove()

    def _enter(self, optimizer: Optimizer, frame: types.FrameType) -> None:
        if not self._active() or os.getpid() != self._process:
            return
        try:
            if self._updating is not None and self._updating[0] is frame:
                # Follows another call of its closure.
                self._modules.enter_scope(*self._updating[1:], frame)
                return
            name = f"Optimizer.{type(optimizer).__name__}.step"
            name = f"{name}.{self._core.number(name)}"
            update = None
            # Whatever is not part of a pass belongs to the parameters.
            if self._recorded:
                update = open_update(self._core, name, optimizer, self._modules.parameters())
            self._updating = frame, name, update
            self._modules.enter_scope(name, update, frame)
        except Exception as error:
            self._core.fault(f"step of {type(optimizer).__name__}: {error}")

    def _suspend(self, optimizer: Optimizer) -> None:
        if self._updating is not None and os.getpid() == self._process:
            try:
                self._modules.suspend_scope()
            except Exception as error:
                self._core.fault(f"step of {type(optimizer).__name__}: {error}")

    def _leave(self, optimizer: Optimizer) -> None:
        if os.getpid() != self._process:
            return
        self._updating = None
        try:
            self._modules.leave_scope()
        except Exception as error:
            self._core.fault(f"step of {type(optimizer).__name__}: {error}")
