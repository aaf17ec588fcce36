"""Zeros, NaN, infinities, sentinels and extremes of a piece, derived from how many of its elements reach certain
thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch

_INFINITY = float("inf")

#: Magnitudes from here on mark a missing value; for float16, those of the greatest magnitude do.
SENTINEL = 2.0**100

#: Number of [`limits`].
LIMITS = 8

#: Elements compared at once: each comparison takes a byte.
COMPARED = (128 << 20) // LIMITS


class Classes(NamedTuple):
    """Number of elements of each class."""

    elements: int
    zeros: int
    nan: int
    positive: int
    negative: int
    #: Sentinels of either sign, and elements equal to the least number of their dtype.
    below: int
    above: int
    least: int

    @property
    def ordinary(self) -> int:
        """Number of summed elements."""
        return self.elements - self.nan - self.positive - self.negative - self.below - self.above

    @property
    def finite(self) -> int:
        """Number of elements that are sentinels or summed."""
        return self.ordinary + self.below + self.above


def limits(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Thresholds: -Inf, the least finite number, the one above it, the least one that is no sentinel, 0, the least
    positive number, the first sentinel above those, and +Inf."""
    about = torch.finfo(dtype)
    # The greatest power of two; numbers of its size are spaced `eps` times that apart.
    power = math.ldexp(1.0, math.frexp(about.max)[1] - 1)
    above = about.min + power * about.eps
    if dtype is torch.float16:
        ordinary, beyond = -65472.0, about.max
    else:
        # One step above -2^100.
        ordinary, beyond = -SENTINEL * (1.0 - about.eps / 2.0), SENTINEL
    numbers = (-_INFINITY, about.min, above, ordinary, 0.0, about.smallest_normal * about.eps, beyond, _INFINITY)
    # Filled on the device: a list would be copied from the host, which waits.
    return torch.cat([torch.full((1, 1), number, dtype=dtype, device=device) for number in numbers])


def reached(values: torch.Tensor, limits: torch.Tensor) -> list[torch.Tensor]:
    """Counts how many of `values` reach each of `limits`; NaN reaches none. Large tensors are counted in parts."""
    if values.dim() > 1:
        limits = limits.view(LIMITS, *(1 for _ in values.shape))
        parts = values.split(max(COMPARED * values.shape[0] // values.numel(), 1)) if values.numel() > COMPARED else (values,)
        return [part.ge(limits).sum(tuple(range(1, values.dim() + 1))) for part in parts]
    if values.numel() <= COMPARED:
        return [values.ge(limits).sum(1)]
    return [part.ge(limits).sum(1) for part in values.split(COMPARED)]


def reached_by_rows(rows: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Counts how many elements of each row reach each of `limits`: one row per limit. At most [`COMPARED`]
    elements."""
    return rows.ge(limits.view(LIMITS, 1, 1)).sum(2)


def classes(elements: int, counts: Sequence[int]) -> Classes:
    """Converts the counts of [`reached`] to classes."""
    all_but_nan, finite, beyond_least, ordinary, zero, positive, beyond, infinite = counts
    return Classes(
        elements,
        zeros=zero - positive,
        nan=elements - all_but_nan,
        positive=infinite,
        negative=all_but_nan - finite,
        below=finite - ordinary,
        above=beyond - infinite,
        least=finite - beyond_least,
    )


def extremes(found: Classes, dtype: torch.dtype, least: float, greatest: float) -> tuple[Optional[float], Optional[float]]:
    """Returns the extremes of the finite elements, from those of all elements with 0 in place of what is not summed.
    `None` if the zeros hide them, or for a sentinel of which only the kind is known."""
    low = high = None
    if found.ordinary:
        filled = found.ordinary < found.elements
        # An extreme is visible if it is beyond the filled-in zeros, or is a zero itself.
        low = least if not filled or least < 0.0 or found.zeros else None
        high = greatest if not filled or greatest > 0.0 or found.zeros else None
    about = torch.finfo(dtype)
    if found.below:
        low = about.min if found.least else None
        if found.finite == found.least:
            high = low
    if found.above:
        high = about.max if dtype is torch.float16 else None
        if found.finite == found.above:
            low = high
    return low, high
