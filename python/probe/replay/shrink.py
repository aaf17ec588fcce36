"""Makes a failing call small: halves sizes while it still fails on the device at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from probe.replay.evaluate import mapped
from probe.replay.recorded import Call

#: Attempts altogether; each evaluates the call in float64 three times.
_ATTEMPTS = 64


def shrunk(call: Call, fails: Callable[[Call], bool]) -> Call:
    """Returns the smallest call found that still `fails`. Sizes that occur in several tensors, and in plain arguments, shrink together."""
    attempts = 0
    progress = True
    while progress:
        progress = False
        sizes = sorted({size for tensor in call.tensors().values() for size in tensor.shape if size > 1}, reverse=True)
        for size in sizes:
            for last in (False, True):
                if attempts == _ATTEMPTS:
                    return call
                attempts += 1
                smaller = _halved(call, size, last)
                if fails(smaller):
                    call, progress = smaller, True
                    break
            if progress:
                break
    return call


def _halved(call: Call, size: int, last: bool) -> Call:
    """Returns the call with half of every dimension of this size: the first half, or the last."""
    half = size // 2

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for dimension, each in enumerate(tensor.shape):
            if each == size:
                tensor = tensor.narrow(dimension, size - half if last else 0, half)
        return tensor

    def number(value: object) -> object:
        if isinstance(value, list):
            return [number(each) for each in value]
        return half if isinstance(value, int) and not isinstance(value, bool) and value == size else value

    seen: dict[int, torch.Tensor] = {}
    args = [number(each) for each in mapped(cut, call.args, seen)]
    kwargs = {name: number(each) for name, each in mapped(cut, call.kwargs, seen).items()}
    gradients = mapped(cut, call.gradients, {}) if call.gradients is not None else None
    parameters = mapped(cut, call.parameters, seen)
    return replace(call, args=args, kwargs=kwargs, gradients=gradients, parameters=parameters)
