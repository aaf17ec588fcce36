"""Does a row of a result depend on the rows beside it? Recorded calls run again alone, in another order, and with other numbers of threads.

A call takes part if its rows are independent in exact arithmetic: in float64, a row alone gives what it gives in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from probe.replay import evaluate, functions
from probe.replay.recorded import Call, NotReplayed, Part, leaves

#: Largest relative difference between rows in float64 that rounding explains.
_EXACT = 1e-9
#: Numbers of threads that are tried.
_THREADS = (1, 2, 4)
#: Runs that should be equal.
_REPEATS = 3


@dataclass
class Dependence:
    """A call whose rows are not the same to the bit in all runs."""

    op: str
    #: What they depend on: `chance`, `position`, `batch size` or `the number of threads`.
    on: str
    path: str
    row: int
    #: Largest difference of the row, and how many of its elements differ.
    largest: float
    elements: int

    def __str__(self) -> str:
        return f"{self.op}: row {self.row} of output.{self.path} depends on {self.on}: {self.elements} elements, by up to {self.largest:.1e}"


def examine(part: Part, wanted: Callable[[str], bool], device: str) -> Iterator[tuple[str, Dependence | None]]:
    """Yields the calls of a part whose rows are independent, in order, each with what its rows depend on nonetheless."""
    seen: set[tuple[object, ...]] = set()
    for name in part.names:
        if not name.endswith(".forward") or not wanted(name):
            continue
        try:
            call = part.call(name)
            if evaluate.why_not(call) is not None or functions.draws(call.api):
                continue
            same = (call.api, *((path, tensor.dtype, tuple(tensor.shape)) for path, tensor in call.tensors().items()))
            if same in seen:
                continue
            seen.add(same)
            batch = _batch(call)
            if batch is not None:
                yield name, _dependence(call, batch, device)
        except NotReplayed:
            continue
        except Exception:  # noqa: BLE001
            # The function refuses a part of its rows, or its results in float64: its rows cannot be told apart.
            continue


def _batch(call: Call) -> tuple[set[int], int] | None:
    """Returns the arguments that hold the rows, by identity, and their number; None if rows are not independent."""
    sizes = {tensor.shape[0] if tensor.dim() else 0 for tensor in call.results.values()}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return None
    given = [tensor for tensor in (*leaves(call.args).values(), *leaves(call.kwargs).values()) if tensor.dim() and tensor.shape[0] == size]
    whole = evaluate.reference(call)
    for chosen in ({id(tensor) for tensor in given}, {id(tensor) for tensor in given[:1]}):
        if not chosen:
            continue
        try:
            rows = [evaluate.reference(_taken(call, chosen, [row])) for row in (0, size - 1)]
        except Exception:  # noqa: BLE001
            continue
        if all(_is_close(part[path][0], whole[path][row]) for part, row in zip(rows, (0, size - 1)) for path in whole):
            return chosen, size
    return None


def _is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    return one.shape == other.shape and bool(torch.allclose(one, other, rtol=_EXACT, atol=_EXACT * float(other.abs().max()), equal_nan=True))


def _taken(call: Call, chosen: set[int], rows: list[int]) -> Call:
    """Returns a call on these rows."""

    def take(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[rows].clone() if id(tensor) in chosen else tensor

    return replace(call, args=evaluate.mapped(take, call.args, {}), kwargs=evaluate.mapped(take, call.kwargs, {}))


def _dependence(call: Call, batch: tuple[set[int], int], device: str) -> Dependence | None:
    chosen, size = batch
    whole = evaluate.here(call, device)
    for _ in range(_REPEATS - 1):
        if found := _differs(call, "chance", evaluate.here(call, device), whole, range(size), range(size)):
            return found
    backwards = list(reversed(range(size)))
    if found := _differs(call, "position", evaluate.here(_taken(call, chosen, backwards), device), whole, range(size), backwards):
        return found
    alone = [[row] for row in sorted({0, size // 2, size - 1})]
    # Kernels choose tiles by powers of two.
    smaller = [list(range(count)) for count in sorted({size - 1, *(2**power for power in range(1, size.bit_length()))}) if 1 < count < size]
    for rows in (*alone, *smaller):
        if found := _differs(call, "batch size", evaluate.here(_taken(call, chosen, rows), device), whole, range(len(rows)), rows):
            return found
    before = torch.get_num_threads()
    try:
        for threads in _THREADS:
            torch.set_num_threads(threads)
            if found := _differs(call, "the number of threads", evaluate.here(call, device), whole, range(size), range(size)):
                return found
    finally:
        torch.set_num_threads(before)
    return None


def _differs(
    call: Call, on: str, found: dict[str, torch.Tensor], whole: dict[str, torch.Tensor], rows: range | list[int], of: range | list[int]
) -> Dependence | None:
    """Returns the first of the `rows` found that is not the row `of` the whole, to the bit."""
    for path, tensor in whole.items():
        for row, place in zip(rows, of):
            one, other = found[path][row], tensor[place]
            differs = (one != other) & ~(one.isnan() & other.isnan()) if one.is_floating_point() else one != other
            if bool(differs.any()):
                largest = float((one.double() - other.double()).abs().nan_to_num(float("inf")).max()) if not one.is_complex() else float((one - other).abs().max())
                return Dependence(call.name, on, path, place, largest, int(differs.sum()))
    return None
