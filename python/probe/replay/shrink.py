"""Makes a failing call small: halves sizes while it still fails on the device at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from probe.replay.evaluate import mapped
from probe.replay.recorded import Call

#: Attempts altogether; each evaluates the call in float64 three times.
_ATTEMPTS = 64


def shrunk(call: Call, fails: Callable[[Call], bool], is_enough: Callable[[Call], bool] = lambda call: False) -> Call:
    """Returns the smallest call found that still `fails`, or the first that `is_enough`. Sizes that occur in several tensors, and in plain
    arguments, shrink together; where that is no such call, the rows of the first tensor alone."""
    attempts = 0
    progress = True
    while progress and not is_enough(call):
        progress = False
        sizes = sorted({size for tensor in call.tensors().values() for size in tensor.shape if size > 1}, reverse=True)
        for size, last, rows in ((size, last, rows) for rows in (False, True) for size in sizes for last in (False, True)):
            if attempts == _ATTEMPTS:
                return call
            smaller = _halved(call, size, last, rows)
            if smaller is None:
                continue
            attempts += 1
            if _holds(fails, smaller):
                call, progress = smaller, True
                break
    return call


def _holds(fails: Callable[[Call], bool], call: Call) -> bool:
    try:
        return fails(call)
    except Exception:  # noqa: BLE001
        # The function refuses these sizes.
        return False


def _halved(call: Call, size: int, last: bool, rows: bool) -> Call | None:
    """Returns the call with half of every dimension of this size, the first half or the last; if `rows`, of the first dimension of the first
    tensor, of gradients and of results alone. None if there is no such."""
    half = size // 2
    first = next(iter(call.tensors().values()))
    if rows and (first.dim() == 0 or first.shape[0] != size):
        return None

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for dimension, each in enumerate(tensor.shape[:1] if rows else tensor.shape):
            if each == size:
                tensor = tensor.narrow(dimension, size - half if last else 0, half)
        return tensor

    def given(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if rows and tensor is not first else cut(tensor)

    def number(value: object) -> object:
        if isinstance(value, list):
            return [number(each) for each in value]
        return half if isinstance(value, int) and not isinstance(value, bool) and value == size and not rows else value

    seen: dict[int, torch.Tensor] = {}
    args = [number(each) for each in mapped(given, call.args, seen)]
    kwargs = {name: number(each) for name, each in mapped(given, call.kwargs, seen).items()}
    gradients = mapped(cut, call.gradients, {}) if call.gradients is not None else None
    parameters = mapped(given, call.parameters, seen)
    return replace(call, args=args, kwargs=kwargs, gradients=gradients, parameters=parameters, results=mapped(cut, call.results, {}))
