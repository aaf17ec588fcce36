"""How far a result is from float64, in units of what a relative error of 1 of everything the call read would do to it.

Per element, with h the call in float64, x what it read, g normal and t = 2^-30:

    scale^2 = h^2 + mean over draws of ((f(x (1 + t g)) - h) / t)^2

so the condition of every function is measured and none is listed. `l2` is |y - h| over |scale|, `peak` the largest of
|y - h| / (scale + rms(scale) / 8). A function that only moves values has no part of other elements in its scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from probe.replay import evaluate, functions
from probe.replay.recorded import Call, NotReplayed

#: Size of the perturbation: far above the roundoff of float64, and small enough that what is left out is below 2^-30.
_TINY = 2.0**-30
#: Perturbed evaluations.
_DRAWS = 2
#: A function that moves values answers a perturbation with no more than this many normal deviations of the value itself.
_MOVED = 8.0
#: Elements by which is told whether values were only moved.
_LOOKED_AT = 4096

#: Roundings of a call's inputs that may add up in an element: the 3 bits beyond which a result is at fault.
_ROUNDINGS = 8.0

#: Unit roundoff by type: half the distance from 1 to the next number.
UNIT = {
    torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8,
    torch.complex128: 2.0**-53, torch.complex64: 2.0**-24,
}  # fmt: skip
#: Units that a single element of a sum in float32 may be off by: sums of sound kernels (convolutions, attention, their gradients) were off by up
#: to 11, and the bound is 8 times as much. Types of 16 bits are summed in float32 and rounded once.
_SUMMED = 4.0


@dataclass(frozen=True)
class Error:
    """Distance of one result from float64."""

    #: Path of the result: `0`.
    path: str
    dtype: torch.dtype
    #: Number of elements that can be off: those that are finite, and not zero whatever is rounded.
    count: int
    #: Of all elements, in units of the scale; of integers the share of elements that differ.
    l2: float
    #: Of the worst element.
    peak: float
    #: Says more where the numbers do not: other non-finite elements.
    remark: str = ""

    def exceeds_rounding(self, times: float = 1.0) -> bool:
        """Returns true if the result is further off than rounding, this many times over, makes it."""
        l2, peak = self.rounding()
        return self.l2 > times * l2 or self.peak > times * peak

    def rounding(self) -> tuple[float, float]:
        """Returns what rounding alone makes of such a result, over all elements and in one. Of a few elements, the worst may be all there is."""
        unit = UNIT.get(self.dtype, 2.0**-24)
        peak = unit * (_SUMMED if unit <= UNIT[torch.float32] else 1.0)
        return max(unit / 2, peak / math.sqrt(max(self.count, 1))), peak


@dataclass
class Reference:
    """A call in float64: results and their scales, by path."""

    values: dict[str, torch.Tensor]
    scales: dict[str, torch.Tensor]
    #: Results whose values were only moved, or chosen.
    moved: set[str]
    #: Elements at a pole, by path: a small error of what the call read decides if they are finite.
    poles: dict[str, torch.Tensor]


def reference(call: Call) -> Reference:
    """Evaluates a call in float64 and measures its condition. Raises NotReplayed."""
    reason = evaluate.why_not(call)
    if reason is not None:
        raise NotReplayed(reason)
    try:
        torch.manual_seed(1)
        before = torch.get_rng_state()
        values = evaluate.reference(call)
        if not call.is_module and (functions.draws(call.api) or not torch.equal(torch.get_rng_state(), before)):
            _holds_still(call, values)
        shaken = _shaken(call)
    except NotReplayed:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise NotReplayed(f"float64 cannot be computed: {type(error).__name__}: {first[:120]}") from None
    known = _magnitudes(call)
    scales, poles, moved = {}, {}, set()
    for path in call.results:
        value = values.get(path)
        if value is None or not (value.is_floating_point() or value.is_complex()):
            continue
        finite = torch.isfinite(value)
        size = torch.where(finite, value, 0).abs()
        change = torch.zeros_like(size)
        poles[path] = torch.zeros_like(finite)
        for other in shaken:
            poles[path] |= torch.isfinite(other[path]) != finite
            moves = torch.nan_to_num((other[path] - value).abs() / _TINY, 0.0, 0.0, 0.0)
            change += moves.square() / len(shaken)
        if _is_moved(value, change, known):
            moved.add(path)
        scales[path] = torch.where(finite, (size.square() + change).sqrt(), 0)
    return Reference(values, scales, moved, poles)


def _holds_still(call: Call, values: dict[str, torch.Tensor]) -> None:
    """Raises NotReplayed if other random numbers give other results."""
    torch.manual_seed(2)
    for path, other in evaluate.reference(call).items():
        if not torch.equal(torch.nan_to_num(other), torch.nan_to_num(values[path])):
            raise NotReplayed("it draws random numbers")


def _shaken(call: Call) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)

    def shake(tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        return tensor * (1 + _TINY * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))

    return [evaluate.reference(call, shake) for _ in range(_DRAWS)]


def _magnitudes(call: Call) -> torch.Tensor:
    """Returns 0, 1 and the magnitudes of all numbers that the call read."""
    tensors = [_parts(tensor).double().abs().flatten() for tensor in call.tensors().values() if tensor.is_floating_point() or tensor.is_complex()]
    plain = [abs(float(value)) for value in (*call.args, *call.kwargs.values()) if isinstance(value, (int, float))]
    return torch.cat([torch.tensor([0.0, 1.0, math.inf, *plain], dtype=torch.float64), *tensors])


def _is_moved(value: torch.Tensor, change: torch.Tensor, known: torch.Tensor) -> bool:
    """Returns true if every value is one that the call read, and moves as it does. What is not finite tells nothing."""
    step = max(1, value.numel() // _LOOKED_AT)
    looked = torch.where(torch.isfinite(value), value, 0).flatten()[::step]
    moves = change.flatten()[::step]
    return bool((moves <= (_MOVED * looked.abs()).square()).all()) and bool(torch.isin(_parts(looked).abs(), known).all())


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Returns real and imaginary parts of complex numbers, others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def errors(recorded: dict[str, torch.Tensor], of: Reference) -> list[Error]:
    """Returns how far each recorded result is off. Those that float64 has no counterpart for, and empty ones, are left out. Raises NotReplayed if none is
    left, or one has another shape."""
    for path, result in recorded.items():
        value = of.values.get(path)
        if value is not None and result.numel() and value.shape != result.shape:
            raise NotReplayed(f"output.{path} has shape {list(result.shape)}, here {list(value.shape)}")
    found = known_errors(recorded, of)
    if not found:
        raise NotReplayed("none of its recorded results can be computed from what it was given")
    return found


def known_errors(recorded: dict[str, torch.Tensor], of: Reference) -> list[Error]:
    """Returns how far those results are off that have elements, and the shape that float64 has."""
    found = []
    for path, result in recorded.items():
        value = of.values.get(path)
        if value is not None and result.numel() and value.shape == result.shape:
            found.append(_error(path, result, value, of.scales.get(path), path in of.moved, of.poles.get(path)))
    return found


def _error(path: str, result: torch.Tensor, value: torch.Tensor, scale: torch.Tensor | None, moved: bool, poles: torch.Tensor | None) -> Error:
    if scale is None or poles is None or not (result.is_floating_point() or result.is_complex()):
        off = (result != value.to(result.dtype)).double().mean().item()
        return Error(path, result.dtype, result.numel(), off, off, "elements differ" if off else "")
    rounded = evaluate.widened(value.to(result.dtype))
    wide = evaluate.widened(result)
    undecided = poles | _at_limit(value, scale, result.dtype)
    finite = torch.isfinite(rounded) & ~(undecided & ~torch.isfinite(wide))
    strange = int((~undecided & (torch.isfinite(wide) != finite)).sum())
    if strange:
        return Error(path, result.dtype, result.numel(), math.inf, math.inf, f"{strange} elements are finite on one side only")
    distance = torch.where(finite, wide - value, 0).abs()
    if moved:
        distance = torch.where(wide == rounded, 0.0, distance)
    scale = torch.where(finite, scale, 0)
    l2 = (distance.norm() / (scale.norm() + least(result.dtype))).item()
    others = 0.0 if moved else scale.square().mean().sqrt().item() / 8
    return Error(path, result.dtype, int((scale > 0).sum()), l2, (distance / (scale + others + least(result.dtype))).max().item())


def _at_limit(value: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the elements of which rounding decides if they are beyond the largest number of their type."""
    return (value.abs() - torch.finfo(dtype).max).abs() <= _ROUNDINGS * UNIT.get(dtype, 2.0**-24) * scale


def least(dtype: torch.dtype) -> float:
    """Returns what is added to every scale: below the least normal number there is no relative precision; of float16, below the least number
    at all."""
    return torch.finfo(dtype).tiny / UNIT.get(dtype, 2.0**-24) * (2.0**-10 if dtype == torch.float16 else 1.0)
