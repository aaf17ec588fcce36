"""Sums in pairs of binary32: the second number holds what rounding took from the first.

Needs of a device that it adds, subtracts, multiplies and divides binary32 with one rounding to nearest, and nothing of
how it sums: trees are made of additions. Sums have 44 bits and more, relative to the sum of magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from probe.recorder import device_classes as classes
from probe.recorder.device_chunks import ROW, Chunk, Kind
from probe.recorder.device_sketch import Signs
from probe.recorder.device_sums import Found, Part, in_rows, magnitude, power_of_two

_NARROW = torch.float32

#: Numbers are scaled so that the greatest is about this: there is room for sums of squares above, and room below for
#: numbers that are smaller by many orders of magnitude.
_GREATEST = 2.0**48

#: Extremes of moduli are taken of a quarter where a part may reach this: the greatest moduli are beyond binary32. Those
#: of small ones are taken of multiples: the second numbers of pairs need room below.
_LARGE = 2.0**126

#: Below every root but 0.
_TINY = 2.0**-60

#: A number as the unevaluated sum of two.
Both = tuple[torch.Tensor, torch.Tensor]


class Pair(NamedTuple):
    """Numbers as unevaluated sums of two each; without `low` it is 0."""

    high: torch.Tensor
    low: torch.Tensor | None = None

    def times(self, factor: torch.Tensor) -> Pair:
        """Multiplied by a power of two."""
        return Pair(self.high * factor, None if self.low is None else self.low * factor)

    def over(self, unit: torch.Tensor) -> Pair:
        """Divided by a power of two."""
        return Pair(self.high / unit, None if self.low is None else self.low / unit)


def two_sum(a: torch.Tensor, b: torch.Tensor) -> Both:
    """`a + b`, exactly."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)).add_(b - of_b)


def two_square(a: torch.Tensor) -> Both:
    """`a * a`, exactly, unless it is near the ends of the range."""
    spread = a * 4097.0
    first = spread - (spread - a)
    second = a - first
    square = a * a
    rest = (first * first - square).add_(first * second * 2.0).add_(second * second)
    return square, rest


def renormalized(high: torch.Tensor, low: torch.Tensor) -> Pair:
    """The same sums with no overlap; `low` is of no greater magnitude."""
    total = high + low
    return Pair(total, low - (total - high))


def squares(numbers: Pair) -> Pair:
    """Squares of `numbers`, to about 46 bits."""
    square, rest = two_square(numbers.high)
    if numbers.low is not None:
        rest = rest + numbers.high * numbers.low * 2.0
    return Pair(square, rest)


def column_sums(numbers: Pair) -> torch.Tensor:
    """Sums over the first dimension, as two rows: the sums and what they lost. A tree of additions in a fixed order."""
    high, low = numbers
    low = torch.zeros_like(high) if low is None else low
    while (rows := high.shape[0]) > 1:
        half = rows // 2
        total, lost = two_sum(high[:half], high[half : 2 * half])
        lost.add_(low[:half]).add_(low[half : 2 * half])
        if rows % 2:
            total, lost = torch.cat([total, high[-1:]]), torch.cat([lost, low[-1:]])
        high, low = total, lost
    return torch.cat([high, low])


class PairSums:
    """For devices that compute in binary32."""

    narrow = _NARROW

    def of(self, chunk: Chunk, limits: torch.Tensor | None, signs: Signs | None) -> Part:
        if chunk.kind is Kind.COMPLEX:
            return _of_complex(chunk, limits, signs)
        values = chunk.values
        if limits is not None:
            counts = classes.counts_of_floats(values, limits)
            extremes = classes.extremes(values)
            numbers, unit = _scaled(classes.ordinary(values), chunk.rows)
        else:
            counts = classes.nonzero(values)
            extremes = classes.integer_extremes(values, chunk.kind is Kind.UNSIGNED)
            numbers, unit = _integers(values, chunk.rows, chunk.kind is Kind.UNSIGNED)
        columns = [numbers, squares(numbers)]
        if signs is not None:
            columns.insert(0, _rotated(numbers, signs))
        return Part((counts, *extremes, unit, unit), column_sums(_beside(columns)))

    def finish(
        self, scalars: Sequence[Sequence[list[float]]], blocks: torch.Tensor | None, sketch: bool
    ) -> tuple[list[Found], torch.Tensor | None]:
        assert blocks is not None
        sums = blocks.to(torch.float64).view(len(scalars), 2, -1, ROW).sum(1)
        totals, square_sums = sums[:, -2].sum(1).tolist(), sums[:, -1].sum(1).tolist()
        found, lane_units = [], []
        for numbers, total, square_sum in zip(scalars, totals, square_sums):
            counts, *extremes, unit, lane_unit = numbers
            least, greatest = _extremes(extremes)
            norm = math.sqrt(max(square_sum, 0.0))
            found.append(Found([int(count) for count in counts], least, greatest, total, norm, unit[0]))
            lane_units.append(lane_unit)
        if not sketch:
            return found, None
        return found, sums[:, 0] * torch.tensor(lane_units, dtype=torch.float64, device="cpu")


def _extremes(numbers: Sequence[list[float]]) -> tuple[float, float]:
    if len(numbers) == 2:
        return numbers[0][0], numbers[1][0]
    # Of moduli: pairs, multiplied by a factor.
    least, least_low, greatest, greatest_low, factor = (number[0] for number in numbers)
    least = (least + least_low) / factor if math.isfinite(least) else least
    return least, (greatest + greatest_low) / factor if math.isfinite(greatest) else greatest


def _scaled(values: torch.Tensor, rows: int) -> tuple[Pair, torch.Tensor]:
    """Finite floats as rows of pairs, and the power of two that they are divided by."""
    if values.dtype is torch.float64:
        # The device has tensors of this type, so it computes with them somehow.
        wide = in_rows(values, rows, torch.float64)
        unit = _unit(wide)
        wide = wide / unit
        high = wide.to(_NARROW)
        return Pair(high, (wide - high.to(torch.float64)).to(_NARROW)), unit
    numbers = in_rows(values, rows, _NARROW)
    unit = _unit(numbers)
    return Pair(numbers / unit), unit


def _unit(numbers: torch.Tensor) -> torch.Tensor:
    """The power of two that brings the greatest of `numbers` to `_GREATEST`; a normal one."""
    return (power_of_two(magnitude(numbers)) / _GREATEST).clamp_min(torch.finfo(numbers.dtype).smallest_normal)


def _integers(values: torch.Tensor, rows: int, unsigned: bool) -> tuple[Pair, torch.Tensor]:
    """Integers as rows of pairs, and the power of two that they are divided by."""
    if values.dtype.itemsize <= 2:
        numbers = Pair(in_rows(values, rows, _NARROW))
    else:
        bits = values.to(torch.int64)
        first = (bits >> 48) & 0xFFFF if unsigned else bits >> 48
        second, third = (bits >> 24) & 0xFF_FFFF, bits & 0xFF_FFFF
        high, low = in_rows(first, rows, _NARROW), in_rows(second, rows, _NARROW)
        high, middle = two_sum(high * 2.0**48, low * 2.0**24)
        middle, rest = two_sum(middle, in_rows(third, rows, _NARROW))
        high, middle = two_sum(high, middle)
        numbers = renormalized(high, middle + rest)
    unit = _unit(numbers.high)
    return numbers.over(unit), unit


def _of_complex(chunk: Chunk, limits: torch.Tensor | None, signs: Signs | None) -> Part:
    assert limits is not None
    parts = chunk.values
    largest = classes.largest_part(parts)
    counts = classes.counts_of_floats(largest, limits)
    columns = []
    lane_unit = None
    if signs is not None:
        # A part that is not finite leaves the other part in the sketch.
        numbers, lane_unit = _scaled(classes.finite(parts).view(-1), chunk.rows)
        columns.append(_rotated(numbers, signs))
    # An element counts elsewhere if both of its parts are finite.
    finite = largest.isfinite()
    parts = parts.where(finite[:, None], 0.0)
    numbers, unit = _scaled(parts.reshape(-1), chunk.rows)
    moduli, extremes = _moduli(parts, unit, finite, chunk.rows)
    columns += [moduli, squares(numbers)]
    return Part((counts, *extremes, unit, unit if lane_unit is None else lane_unit), column_sums(_beside(columns)))


def _moduli(
    parts: torch.Tensor, unit: torch.Tensor, finite: torch.Tensor, rows: int
) -> tuple[Pair, tuple[torch.Tensor, ...]]:
    """Moduli over `unit` in rows half as long, and the extremes of the moduli where `finite`, as `_extremes` reads them."""
    if parts.dtype is torch.float64:
        whole, scaled = (torch.hypot(numbers[:, 0], numbers[:, 1]) for numbers in (parts, parts / unit))
        least, greatest = _where_finite(whole, finite)
        high = scaled.to(_NARROW)
        moduli = Pair(high, (scaled - high.to(torch.float64)).to(_NARROW))
        return _in_half_rows(moduli, rows), (least.amin(0, keepdim=True), greatest.amax(0, keepdim=True))
    parts = parts.to(_NARROW)
    # Each by its own power of two: squares neither overflow nor vanish.
    own = power_of_two(parts.abs().amax(1))
    moduli = _hypot(parts / own[:, None])
    factor = (1.0 / unit).clamp_min(1.0).where(unit < _LARGE / _GREATEST, 0.25)
    return _in_half_rows(moduli.times(own / unit), rows), (*_extremes_of_pairs(moduli.times(own * factor), finite), factor)


def _hypot(parts: torch.Tensor) -> Pair:
    """Moduli of complex numbers whose larger part is below 2, and below 1 only where it was subnormal."""
    square, rest = two_square(parts)
    total, lost = two_sum(square[:, 0], square[:, 1])
    lost = lost + (rest[:, 0] + rest[:, 1])
    root = total.sqrt()
    of_root, more = two_square(root)
    # One step of Newton's, from a root that is right to binary32.
    return Pair(*renormalized(root, (((total - of_root) - more) + lost) / (root.clamp_min(_TINY) * 2.0)))


def _extremes_of_pairs(numbers: Pair, finite: torch.Tensor) -> tuple[torch.Tensor, ...]:
    high, low = numbers
    assert low is not None
    least, greatest = _where_finite(high, finite)
    least, greatest = least.amin(0, keepdim=True), greatest.amax(0, keepdim=True)
    least_low, _ = _where_finite(low, finite & (high == least))
    _, greatest_low = _where_finite(low, finite & (high == greatest))
    return least, least_low.amin(0, keepdim=True), greatest, greatest_low.amax(0, keepdim=True)


def _where_finite(numbers: torch.Tensor, finite: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`numbers` with the others out of the way of the least, and of the greatest."""
    return numbers.where(finite, math.inf), numbers.where(finite, -math.inf)


def _in_half_rows(numbers: Pair, rows: int) -> Pair:
    """Rows of half the length, and as many zeros: a modulus is there for every two real numbers."""
    half = (in_rows(each, rows, _NARROW, ROW // 2) for each in numbers if each is not None)
    return Pair(*(pad(each, (0, ROW // 2)) for each in half))


def _rotated(numbers: Pair, signs: Signs) -> Pair:
    return Pair(*(signs.rotated(each) for each in numbers if each is not None))


def _beside(columns: Sequence[Pair]) -> Pair:
    """Rows of all `columns`, one after another."""
    high = torch.cat([pair.high for pair in columns], 1)
    if all(pair.low is None for pair in columns):
        return Pair(high)
    return Pair(high, torch.cat([torch.zeros_like(pair.high) if pair.low is None else pair.low for pair in columns], 1))
