"""Computes the results of a tensor's piece on its device: few operations, whatever its size.

A launch costs the host more than most tensors cost the device, so operations are counted: six for statistics, nine
with the sketch. A binary32 copy of the piece eliminates elements that are not summed: multiplied by 2^28, sentinels
become infinite, and one more operation replaces whatever is not finite with 0. Sums are in binary32, in whatever
order the device sums: the record states the error bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch

from probe.recorder.device_chunks import WIDER, Kind, Piece
from probe.recorder.device_classes import SENTINEL, limits, reached, reached_by_rows
from probe.recorder.device_sketch import LANES, Signs, lanes, room
from probe.recorder.device_streams import Shared

#: Sentinels of binary32 and bfloat16 times this are infinite, and nothing else is.
_LARGE = 2.0**28

#: The greatest number of float16. The remainder of a division by it leaves all other numbers unchanged, and is 0 for
#: this one and NaN for infinities.
_GREATEST_SHORT = 65504.0

#: Divisor of 64-bit integers that keeps their squares within binary32.
_WIDE_INTEGER = 2.0**32


class Part(NamedTuple):
    """Results of one piece, on the device. The kind determines which numbers there are."""

    elements: int
    #: Elements of the tensor before the piece.
    first: int
    #: Counts of elements: of each class, or of nonzero ones; a large piece has several.
    counts: list[torch.Tensor]
    #: Least and greatest, variance and mean; none if the counts determine them.
    numbers: tuple[torch.Tensor, ...]
    #: Signed sums.
    lanes: Optional[torch.Tensor]


class Rows(NamedTuple):
    """Results of tensors of one size, on the device."""

    #: Elements of each tensor.
    elements: int
    #: One row for each number of [`limits`], with one count for each tensor.
    counts: torch.Tensor
    #: Least and greatest, variance and mean, each for all tensors.
    numbers: tuple[torch.Tensor, ...]
    #: Signed sums, one row for each tensor.
    lanes: Optional[torch.Tensor]


class Sums:
    """Measures pieces; keeps the constants that they need on each device."""

    def __init__(self, sketch: bool) -> None:
        self._signs = Signs() if sketch else None
        self._shared = Shared()

    def of(self, kind: Kind, piece: Piece, stream: Any) -> Part:
        """Starts measuring a piece, in `stream`, which is the current one."""
        if kind is Kind.FLOAT:
            return self._floats(piece, stream)
        if kind is Kind.BOOL:
            return self._bools(piece, stream)
        if kind is Kind.COMPLEX:
            return self._complex(piece, stream)
        return self._doubles(piece, stream) if kind is Kind.DOUBLE else self._integers(kind, piece, stream)

    def of_rows(self, rows: torch.Tensor, stream: Any) -> Rows:
        """Starts measuring each row of 32-bit or 16-bit floats, in `stream`, which is the current one: like `of` for
        a tensor."""
        counts = reached_by_rows(rows, self._limits(rows.dtype, rows.device, stream))
        summed = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
        self._keep_summed(rows, summed, stream)
        numbers = (*torch.aminmax(summed, dim=1), *torch.var_mean(summed, dim=1, correction=0))
        return Rows(rows.shape[1], counts, numbers, None if self._signs is None else self._signs.of_rows(summed, stream))

    def _keep_summed(self, values: torch.Tensor, out: torch.Tensor, stream: Any) -> None:
        """Writes floats to `out` in binary32, scaled by the inverse of [`unit`], with 0 in place of what is not
        summed."""
        short = values.dtype is torch.float16
        factor = self._number(_GREATEST_SHORT if short else _LARGE, values.device, stream)
        (torch.fmod if short else torch.mul)(values, factor, out=out)
        torch.nan_to_num(out, 0.0, 0.0, 0.0, out=out)

    def _floats(self, piece: Piece, stream: Any) -> Part:
        values = piece.values
        if values.dtype.itemsize == 1:
            values = values.to(torch.float32)
        counts = reached(values, self._limits(values.dtype, values.device, stream))
        buffer, flat = _copy(values)
        self._keep_summed(values, flat if values.dim() == 1 else flat.view(values.shape), stream)
        numbers = (*torch.aminmax(flat), *torch.var_mean(flat, correction=0))
        return Part(flat.numel(), piece.first, counts, numbers, self._lanes(buffer, flat, piece.first, stream))

    def _doubles(self, piece: Piece, stream: Any) -> Part:
        values = piece.values
        counts = reached(values, self._limits(values.dtype, values.device, stream))
        buffer, flat = _copy(values)
        # False for NaN.
        zero = self._number(0.0, values.device, stream)
        torch.where(values.abs() < SENTINEL, values, zero, out=flat.view(values.shape))
        numbers = (*torch.aminmax(flat), *torch.var_mean(flat, correction=0))
        return Part(flat.numel(), piece.first, counts, numbers, self._lanes(buffer, flat, piece.first, stream))

    def _integers(self, kind: Kind, piece: Piece, stream: Any) -> Part:
        values = piece.values
        values = values.view(torch.int64) if kind is Kind.UNSIGNED else values.to(WIDER.get(values.dtype, values.dtype))
        counts = [values.ne(0).sum().view(1)]
        # Unsigned integers are compared by their bits with the first one flipped.
        extremes = torch.aminmax(values ^ -(1 << 63) if kind is Kind.UNSIGNED else values)
        buffer, flat = _copy(values)
        out = flat.view(values.shape)
        factor = self._number(1.0 / unit(kind, piece.values.dtype), values.device, stream)
        if kind is Kind.UNSIGNED:
            torch.mul(values & 0xFFFF_FFFF, factor, out=out)
            out.add_((values >> 32) & 0xFFFF_FFFF)
        else:
            torch.mul(values, factor, out=out)
        numbers = (*extremes, *torch.var_mean(flat, correction=0))
        return Part(flat.numel(), piece.first, counts, numbers, self._lanes(buffer, flat, piece.first, stream))

    def _bools(self, piece: Piece, stream: Any) -> Part:
        # Any nonzero byte is true.
        values = piece.values.view(torch.uint8).ne(0)
        counts = [values.sum().view(1)]
        count = values.numel()
        found = None
        if self._signs is not None:
            buffer, flat = _copy(values)
            flat.view(values.shape).copy_(values)
            found = self._lanes(buffer, flat, piece.first, stream)
        return Part(count, piece.first, counts, (), found)

    def _complex(self, piece: Piece, stream: Any) -> Part:
        values = piece.values
        if values.is_conj() or values.is_neg():
            # The bits in memory have another sign.
            values = values.resolve_conj().resolve_neg()
        parts = torch.view_as_real(values)
        if parts.dtype is torch.float16:
            parts = parts.to(torch.float32)
        largest = parts.abs().amax(-1)
        counts = reached(largest, self._limits(parts.dtype, parts.device, stream))
        # An element is summed if both its parts are finite.
        finite = largest.isfinite()
        summed = parts.where(finite.unsqueeze(-1), 0.0)
        moduli = torch.hypot(summed[..., 0], summed[..., 1])
        least = moduli.where(finite, float("inf")).amin()
        numbers = (least, moduli.amax(), *torch.var_mean(moduli, correction=0))
        found = None
        if self._signs is not None:
            # A non-finite part leaves the other part in the sketch.
            buffer, flat = _copy(parts)
            torch.nan_to_num(parts, 0.0, 0.0, 0.0, out=flat.view(parts.shape))
            found = self._lanes(buffer, flat, 2 * piece.first, stream)
        return Part(values.numel(), piece.first, counts, numbers, found)

    def _lanes(self, buffer: torch.Tensor, flat: torch.Tensor, first: int, stream: Any) -> torch.Tensor | None:
        """Returns the signed sums of `flat`, which is the head of `buffer` and is overwritten."""
        if self._signs is None:
            return None
        self._signs.apply(buffer, flat, first, stream)
        return lanes(buffer, flat.numel())

    def _limits(self, dtype: torch.dtype, device: torch.device, stream: Any) -> torch.Tensor:
        return self._shared.get((device, dtype), device, stream, lambda: limits(dtype, device))

    def _number(self, number: float, device: torch.device, stream: Any) -> torch.Tensor:
        # A tensor with a dimension: results take its dtype, which is wider than that of the other operand.
        make = lambda: torch.full((1,), number, dtype=torch.float32, device=device)  # noqa: E731
        return self._shared.get((device, number), device, stream, make)


def unit(kind: Kind, dtype: torch.dtype) -> float:
    """Returns the factor for the sums of a part."""
    if kind is Kind.FLOAT:
        return 1.0 if dtype is torch.float16 else 1.0 / _LARGE
    return _WIDE_INTEGER if kind in (Kind.INTEGER, Kind.UNSIGNED) and dtype.itemsize == 8 else 1.0


def _copy(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocates memory for the elements of `values` in row-major order: the whole buffer, and the part for the
    elements."""
    dtype = torch.float64 if values.dtype is torch.float64 else torch.float32
    count = values.numel()
    buffer = torch.empty(room(count), dtype=dtype, device=values.device)
    return buffer, buffer[:count]
