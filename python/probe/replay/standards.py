"""The field's standards for one op against a reference of higher precision.

Thresholds are those of msprobe 26.2.0 (`acc_check`), as its code has them; the standard is chosen by function, then by type. ULPs of an
exact zero are counted in the least normal number's, where the older tool takes those of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

#: Name of the profile, printed with every verdict.
PROFILE = "msprobe 26.2.0 acc_check (values of its code)"


@dataclass(frozen=True)
class Bounds:
    """Thresholds of one type."""

    #: Magnitudes up to this are small: held against an absolute bound.
    small: float
    #: Absolute bound of small values.
    absolute: float
    #: Relative bound of the others.
    relative: float
    #: Least denominator of a ratio to the benchmark.
    floor: float
    #: Exponent of the least normal number, and bits of the fraction.
    exponent: int
    fraction: int


_BOUNDS = {
    torch.float16: Bounds(2.0**-10, 2.0**-16, 2.0**-10, 2.0**-11, -14, 10),
    torch.bfloat16: Bounds(2.0**-10, 1e-16, 2.0**-8, 2.0**-8, -126, 7),
    torch.float32: Bounds(2.0**-20, 2.0**-30, 2.0**-20, 2.0**-14, -126, 23),
}

#: Products, judged by ULPs.
_ULP = frozenset({"matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "linear", "mv", "einsum", "__matmul__", "conv1d", "conv2d", "conv3d"})
#: Functions with tighter bounds on the ratio to the benchmark: (largest relative error, mean relative error, RMSE).
_L1 = frozenset({"embedding", "npu_fusion_attention", "scatter_", "scatter_add_"})
_L2 = frozenset({"addmm", "matmul", "mm", "sum", "index", "one_hot", "nonzero", "layer_norm", "gelu", "npu_rms_norm", "npu_cross_entropy_loss"})
_RATIOS = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}


@dataclass(frozen=True)
class Distance:
    """Distance of a result from the reference, as users of the standards read it."""

    rmse: float
    largest_relative: float
    mean_relative: float
    #: In units in the last place; the mean and the largest.
    mean_ulp: float
    largest_ulp: float
    #: Share of elements beyond the relative or the absolute bound.
    beyond: float
    #: Share of elements that differ from the rounded reference.
    differing: float
    #: Largest absolute error, and cosine.
    largest: float
    cosine: float
    #: Shares of elements with a relative error below 1 %, 0.1 % and 0.01 %.
    within_2: float
    within_3: float
    within_4: float


def distance(result: torch.Tensor, reference: torch.Tensor) -> Distance:
    """Measures a result in its own type against `reference` in float64."""
    bounds = _BOUNDS.get(result.dtype, _BOUNDS[torch.float32])
    complex_valued = result.is_complex()
    rounded = reference.to(result.dtype)
    differing = ((result != rounded) & ~(torch.isnan(result) & torch.isnan(rounded))).double().mean().item() if result.numel() else 0.0
    reference = reference if complex_valued else _within_range(reference, rounded)
    wide = result.to(reference.dtype)
    off = (wide - reference).abs().double()
    size = reference.abs().double()
    finite = torch.isfinite(off)
    # A number on one side only is as far off as can be; equal infinities agree.
    apart = ~finite & ~((wide == reference) | (torch.isnan(wide) & torch.isnan(reference)) if not complex_valued else finite)
    kept, size = off[finite], size[finite]
    if not kept.numel():
        wrong = bool(apart.any())
        return Distance(*([math.inf if wrong else 0.0] * 6), differing, math.inf if wrong else 0.0, 0.0 if wrong else 1.0, *([0.0 if wrong else 1.0] * 3))
    relative = torch.where(size > 0, kept / size.clamp_min(1e-300), torch.where(kept > 0, math.inf, 0.0))
    normal = size > bounds.small
    exponent = (torch.frexp(size).exponent - 1).clamp_min(bounds.exponent)
    ulp = torch.ldexp(kept, bounds.fraction - exponent)
    beyond = torch.where(normal, relative > bounds.relative, kept > bounds.absolute)
    judged = relative[normal] if bool(normal.any()) else torch.zeros(1)
    lost = int(apart.sum())
    return Distance(
        rmse=math.inf if lost else kept.square().mean().sqrt().item(),
        largest_relative=math.inf if lost else judged.max().item(),
        mean_relative=math.inf if lost else judged.mean().item(),
        mean_ulp=math.inf if lost else ulp.mean().item(),
        largest_ulp=math.inf if lost else ulp.max().item(),
        beyond=(beyond.sum().item() + lost) / off.numel(),
        differing=differing,
        largest=math.inf if lost else kept.max().item(),
        cosine=_cosine(wide[finite], reference[finite]),
        within_2=_below(relative, 1e-2, off.numel()),
        within_3=_below(relative, 1e-3, off.numel()),
        within_4=_below(relative, 1e-4, off.numel()),
    )


def _within_range(reference: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """Returns the reference with zeros and infinities for numbers that round to these: the type holds nothing nearer."""
    return torch.where((rounded == 0) | torch.isinf(rounded), rounded, reference).double()


def _below(relative: torch.Tensor, bound: float, elements: int) -> float:
    return (relative < bound).sum().item() / elements


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Returns the cosine; 1 of two that are all zero, 0 of one."""
    product = (one.norm() * other.norm()).item()
    if product == 0:
        return 1.0 if one.norm().item() == other.norm().item() else 0.0
    return (torch.linalg.vecdot(one.flatten(), other.flatten()).real / product).item()


def verdict(base: str, dtype: torch.dtype, candidate: Distance, benchmark: Distance | None, moved: bool) -> tuple[bool, str]:
    """Returns whether the standard of this function and type is met, and the standard in words."""
    if moved or not (dtype.is_floating_point or dtype.is_complex):
        return candidate.differing == 0, f"binary: {candidate.differing:.2g} of the elements differ (limit 0)"
    if benchmark is not None:
        return _ratio(base, dtype, candidate, benchmark)
    if base in _ULP:
        limit = 64.0 if dtype == torch.float32 else 1.0
        return candidate.mean_ulp < limit, f"ULP: mean {candidate.mean_ulp:.3g} (limit {limit:g})"
    return _alone(dtype, candidate)


def _alone(dtype: torch.dtype, found: Distance) -> tuple[bool, str]:
    """The standard for one device alone; its first rule that decides holds. A warning of the older tool passes."""
    if found.cosine <= 0.99:
        return False, f"single device: cosine {found.cosine:.4f} (limit 0.99)"
    if found.largest < 0.001:
        return True, f"single device: largest absolute error {found.largest:.1e} (limit 1e-3)"
    share, limit = (found.within_2, "1 %") if dtype in (torch.float16, torch.bfloat16) else (found.within_3, "0.1 %")
    bound = 0.99 if dtype in (torch.float16, torch.bfloat16) else 0.999
    return share > bound, f"single device: {share:.2%} of the elements are within {limit} (limit {bound:.1%})"


def _ratio(base: str, dtype: torch.dtype, candidate: Distance, benchmark: Distance) -> tuple[bool, str]:
    level = "L2" if base in _L2 else "L1" if base in _L1 else "L0"
    floor = _BOUNDS.get(dtype, _BOUNDS[torch.float32]).floor
    names = ("largest relative error", "mean relative error", "RMSE")
    pairs = (
        (candidate.largest_relative, benchmark.largest_relative),
        (candidate.mean_relative, benchmark.mean_relative),
        (candidate.rmse, benchmark.rmse),
    )
    ratios = [mine / max(other, floor) if math.isfinite(mine) else math.inf for mine, other in pairs]
    worst = max(range(3), key=lambda place: ratios[place] / _RATIOS[level][place])
    met = ratios[worst] <= _RATIOS[level][worst]
    return met, f"benchmark {level}: {names[worst]} {ratios[worst]:.3g} times the baseline's (limit {_RATIOS[level][worst]:g})"
