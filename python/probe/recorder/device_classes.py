"""Zeros, NaN, infinities, sentinels and extremes of a chunk, by tensor operations."""

from __future__ import annotations

import torch

_INFINITY = float("inf")


#: Numbers from here on in magnitude stand for the absence of one; of float16 the least number does.
_SENTINEL = 2.0**100


def ordinary_range(dtype: torch.dtype) -> tuple[float, float]:
    """The least number of `dtype` that is no sentinel, and the least positive one beyond those, which may be infinite."""
    if dtype is torch.float16:
        return -65472.0, _INFINITY
    # One step above -2^100.
    return -_SENTINEL * (1.0 - torch.finfo(dtype).eps / 2.0), _SENTINEL


def limits(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """-Inf, the least finite number, the least one that is no sentinel, 0, the least positive number, the least beyond those that are
    no sentinels, and +Inf, for [`counts_of_floats`]."""
    about = torch.finfo(dtype)
    least, beyond = ordinary_range(dtype)
    numbers = (-_INFINITY, about.min, least, 0.0, about.smallest_normal * about.eps, beyond, _INFINITY)
    # Filled on the device: a list would be copied from the host, which waits.
    return torch.cat([torch.full((1, 1), number, dtype=dtype, device=device) for number in numbers])


def counts_of_floats(values: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """How many of `values` reach each of `limits`; NaN reaches none."""
    return values.ge(limits).sum(1)


def classes(elements: int, reached: list[int]) -> list[int]:
    """Elements, zeros, NaN, +Inf, -Inf and sentinels, from what [`counts_of_floats`] found."""
    all_but_nan, finite_or_more, ordinary_or_more, zero_or_more, positive, beyond, infinite = reached
    sentinels = finite_or_more - ordinary_or_more + beyond - infinite
    return [elements, zero_or_more - positive, elements - all_but_nan, infinite, all_but_nan - finite_or_more, sentinels]


def nonzero(values: torch.Tensor) -> torch.Tensor:
    """How many of `values`, integers, are not 0."""
    return values.ne(0).sum(0, keepdim=True)


def extremes(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest finite number; +Inf and -Inf if there is none."""
    least = values.nan_to_num(nan=_INFINITY, posinf=_INFINITY, neginf=_INFINITY).amin(0, keepdim=True)
    greatest = values.nan_to_num(nan=-_INFINITY, posinf=-_INFINITY, neginf=-_INFINITY).amax(0, keepdim=True)
    return least, greatest


def integer_extremes(values: torch.Tensor, unsigned: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest integer. Unsigned ones are in the order of their bits with the first one flipped."""
    if unsigned:
        values = values ^ -(1 << 63)
    return values.amin(0, keepdim=True), values.amax(0, keepdim=True)


def finite(values: torch.Tensor) -> torch.Tensor:
    """`values` with 0 in place of what is not finite."""
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def ordinary(values: torch.Tensor) -> torch.Tensor:
    """`values` with 0 in place of what is not finite, and of sentinels."""
    if values.dtype is torch.float16:
        return finite(values).masked_fill(values == torch.finfo(torch.float16).min, 0.0)
    # False for NaN.
    return values.where(values.abs() < _SENTINEL, 0.0)


def largest_part(parts: torch.Tensor) -> torch.Tensor:
    """Of complex elements, the larger of both parts' magnitudes: it has the class of the element."""
    return parts.abs().amax(1)
