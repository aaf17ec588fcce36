"""Gives ops the values that another run recorded, in place of their own: each op then shows its own error alone.

    inputs     what a call reads
    gradients  the gradients that arrive at its results; at level op, what the ops of the backward pass read
    results    what it returns, as if it were without fault

Gradients flow through a replaced value as if it were the program's own. This changes the run, and is never done unless
requested. What does not fit is an error in the program, before the call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from probe import injected
from probe.patterns import names_of, path_of
from probe.private.guards import without_functions
from probe.replay.recorded import NotReplayed, Part, Recording
from probe.settings import Settings, SettingsError


class Misfit(RuntimeError):
    """A recorded value cannot take the place of the program's; the text says why."""


class Injection:
    """Replaces values in one recording."""

    def __init__(self, settings: Settings, rank: int) -> None:
        """Raises SettingsError if the dump cannot be read or has none of the steps, or at a level at which nothing can be replaced."""
        path = injected.usable(settings)
        try:
            self._dump = Recording(path)
        except ValueError as error:
            raise SettingsError(f"inject: {error}") from None
        #: Selected steps that the dump has: no others are recorded.
        self.steps = injected.steps_of(settings, self._dump.places, rank) if rank in settings.ranks else settings.steps
        self._asked = self.steps if settings.steps.all else settings.steps
        self._at, self._what, self._rank = settings.inject_at, settings.replace, rank
        self._below_autograd = settings.level == "op"
        self._part: Part | None = None
        #: Values replaced so far, and calls that the dump does not have.
        self.replaced = 0
        self.unknown = 0

    def begin_step(self, step: int) -> None:
        """Takes values from this step of the dump. Raises Misfit if it has none."""
        self._part = next(self._dump.parts([range(step, step + 1)], [range(self._rank, self._rank + 1)]), None)
        if self._part is None:
            raise Misfit(f"--inject: {self._dump.path} has no step {step} of rank {self._rank}")

    def describe(self) -> str:
        """Describes what was replaced."""
        left_out = f"; of steps {self._asked}, it has {self.steps} alone, and no others were recorded" if self._asked != self.steps else ""
        return f"{self._replaced_values()}{left_out}"

    def _replaced_values(self) -> str:
        if not self.replaced:
            named = " ".join(pattern.text for pattern in self._at)
            missed = f"{self.unknown} calls are not in it" if self.unknown else f"no call matches --at {named}" if named else "no call was recorded"
            return f"--inject replaced nothing by values of {self._dump.path}: {missed}"
        unknown = f"; {self.unknown} calls are not in it" if self.unknown else ""
        return f"--inject replaced {self.replaced} value{'s' * (self.replaced != 1)} by those of {self._dump.path}{unknown}"

    def wants(self, name: str, scope: str | None) -> bool:
        """Returns true if values of this call are replaced."""
        if self._part is None or (".backward" in name and not self._below_autograd):
            return False
        names = names_of(name, (path_of(scope) or "") if scope else "")
        if self._at and not any(pattern.matches(names) for pattern in self._at):
            return False
        if name not in self._part:
            self.unknown += 1
            return False
        return True

    def inputs(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], written: frozenset[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments for a call. Those that it writes to, at or below the paths `written`, keep their memory and get the values."""
        if ("gradients" if ".backward" in name else "inputs") not in self._what:
            return args, kwargs
        given = self._recorded(name, ("input", "kwarg"))
        once: dict[tuple[int, bool], torch.Tensor] = {}

        def replace(path: str, tensor: torch.Tensor) -> torch.Tensor:
            # A tensor that is given twice stays one: attention asks `query is key`, and calls other functions where it is not. What is
            # written to keeps its memory, though it is read as well (`out=`).
            keeps = ".".join(path.split(".")[:2]) in written
            if (id(tensor), keeps) not in once:
                once[id(tensor), keeps] = self._replaced(name, path, tensor, given, keeps)
            return once[id(tensor), keeps]

        return _mapped(args, "input", replace), _mapped(kwargs, "kwarg", replace)

    def results(self, name: str, result: Any, given: Any, written: Sequence[Any] = ()) -> Any:
        """Returns the result of a call, replaced where requested; `given` are its arguments, whose memory a result may be, and `written` those
        that hold the results of an op that returns none."""
        if "gradients" in self._what and not self._below_autograd:
            self._watch(name, result)
        if "results" not in self._what:
            return result
        made = self._recorded(name, ("output",))
        memory = {tensor.data_ptr() for tensor in _leaves(given)}

        def replace(path: str, tensor: torch.Tensor) -> torch.Tensor:
            return self._replaced(name, path, tensor, made, keeps=tensor.data_ptr() in memory)

        if result is None:
            _mapped(tuple(written), "output", replace)
            return None
        return _mapped(result, "output", replace) if isinstance(result, (tuple, list, dict)) else _mapped((result,), "output", replace)[0]

    def _watch(self, name: str, result: Any) -> None:
        """Replaces the gradients that arrive at a result."""
        backward = name.replace(".forward", ".backward")
        if self._part is None or backward not in self._part:
            return

        def replace(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._gradient(backward, path, gradient))
            return tensor

        _mapped(result if isinstance(result, (tuple, list, dict)) else (result,), "input", replace)

    def _gradient(self, name: str, path: str, gradient: torch.Tensor) -> torch.Tensor:
        given = self._recorded(name, ("input",))
        return self._replaced(name, path, gradient, given, keeps=False) if path in given else gradient

    def _recorded(self, name: str, sides: tuple[str, ...]) -> dict[str, Callable[[], torch.Tensor]]:
        assert self._part is not None
        return self._part.tensors(name, sides)

    def _replaced(self, name: str, path: str, tensor: torch.Tensor, recorded: dict[str, Callable[[], torch.Tensor]], keeps: bool) -> torch.Tensor:
        read = recorded.get(path)
        if read is None:
            return tensor
        with without_functions(), torch.no_grad():
            try:
                value = read()
            except NotReplayed as error:
                raise Misfit(f"--inject: {name}: {error}") from None
            there, here = (f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for each in (value, tensor))
            if there != here or tensor.layout != torch.strided:
                raise Misfit(f"--inject: {name}: {path} is {there} in {self._dump.path}, and {here} {tensor.layout} here; leave it out of --at")
            self.replaced += 1
            if keeps:
                tensor.data.copy_(value)
                return tensor
            own = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device) if 0 not in tensor.stride() else torch.empty_like(tensor)
            own.copy_(value)
        if not tensor.requires_grad:
            return own
        if self._below_autograd or not torch.is_grad_enabled():
            return own.requires_grad_()
        with without_functions():
            replaced: torch.Tensor = _Replaced.apply(tensor, [own])
        return replaced


class _Replaced(torch.autograd.Function):
    """Another value, with the gradient of the one that it replaces."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, value: list[torch.Tensor]) -> torch.Tensor:
        # In a list it is no argument of autograd's: what an op in place may then write to is no view.
        return value[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient, None


def _mapped(value: Any, path: str, replace: Callable[[str, torch.Tensor], torch.Tensor]) -> Any:
    """Returns nested tuples, lists and dicts with each tensor replaced; the program's own are unchanged."""
    if isinstance(value, torch.Tensor):
        return replace(path, value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(item, f"{path}.{place}", replace) for place, item in enumerate(value))
    if type(value) is dict:
        return {name: _mapped(item, f"{path}.{name}", replace) for name, item in value.items()}
    return value


def _leaves(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def keep(_: str, tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    _mapped(value, "", keep)
    return found
