"""Makes a failing call small: halves sizes while it still fails on the device at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from probe.replay import evaluate
from probe.replay.evaluate import mapped
from probe.replay.recorded import Call

#: Attempts altogether; each evaluates the call in float64 three times.
_ATTEMPTS = 64


def shrunk(call: Call, fails: Callable[[Call], bool], is_enough: Callable[[Call], bool] = lambda call: False) -> Call:
    """Returns the smallest call found that still `fails`, or the first that `is_enough`. Sizes that occur in several tensors, and in plain
    arguments, shrink together; where that is no such call, the rows of the first tensor, and of all that have as many."""
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
        return fails(call) and not _reads_beyond(call)
    except Exception:  # noqa: BLE001
        # The function refuses these sizes.
        return False


def _reads_beyond(call: Call) -> bool:
    """Returns true if the result depends on what lies behind the tensors. Operators of torch below its functions do not check that sizes fit: a batch
    norm reads as many weights as there are channels."""

    def results(behind: float) -> dict[str, torch.Tensor]:
        def laid(tensor: torch.Tensor) -> torch.Tensor:
            memory = torch.full((2 * tensor.numel() + 1,), behind, dtype=tensor.dtype)
            return memory[: tensor.numel()].view(tensor.shape).copy_(tensor)

        return evaluate.reference(call, laid)

    zeros, ones = results(0.0), results(1.0)
    return any(not torch.equal(torch.nan_to_num(value), torch.nan_to_num(ones[path])) for path, value in zeros.items())


def _halved(call: Call, size: int, last: bool, rows: bool) -> Call | None:
    """Returns the call with half of every dimension of this size, the first half or the last; if `rows`, of first dimensions alone. None if the
    first tensor has no such. A gradient and an input of a batch stay of one size: a backward of torch may read beyond the end of the smaller."""
    half = size // 2
    first = next(iter(call.tensors().values()))
    if rows and (first.dim() == 0 or first.shape[0] != size):
        return None

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for dimension, each in enumerate(tensor.shape[:1] if rows else tensor.shape):
            if each == size:
                tensor = tensor.narrow(dimension, size - half if last else 0, half)
        return tensor

    def number(value: object) -> object:
        if isinstance(value, list):
            return [number(each) for each in value]
        return half if isinstance(value, int) and not isinstance(value, bool) and value == size and not rows else value

    seen: dict[int, torch.Tensor] = {}
    args = [number(each) for each in mapped(cut, call.args, seen)]
    kwargs = {name: number(each) for name, each in mapped(cut, call.kwargs, seen).items()}
    gradients = mapped(cut, call.gradients, {}) if call.gradients is not None else None
    parameters = mapped(cut, call.parameters, seen)
    return replace(call, args=args, kwargs=kwargs, gradients=gradients, parameters=parameters, results=mapped(cut, call.results, {}))
