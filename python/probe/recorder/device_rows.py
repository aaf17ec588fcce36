"""Results of many tensors, brought to the host in one copy and finished there."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import torch

from probe.recorder.device_chunks import Kind
from probe.recorder.device_classes import LIMITS, classes, extremes
from probe.recorder.device_sketch import LANES
from probe.recorder.device_sums import Part, Rows, unit

#: 0 float, 1 integer, 2 truth value, 3 unsigned integer of which some exceed 63 bits; elements, zeros, NaN, +Inf,
#: -Inf, sentinels; least, greatest, mean and norm, each only if known; least and greatest as integers (for kind 3:
#: their 64 bits); error bound of the sums relative to the norm, if they are not in binary64; and the lanes of the
#: sketch as little-endian binary32.
Row = tuple[int, list[int], list[Optional[float]], Optional[list[int]], Optional[float], Optional[bytes]]

#: Error bound of sums in binary32, relative to the norm, in whatever order a device sums.
SUM_ERROR = 2.0**-20

#: The least mean square known to that accuracy: below, squares are too near the end of the range of binary32, or of
#: binary64.
_LEAST_SQUARE, _LEAST_SQUARE_WIDE = 2.0**-106, 2.0**-969

#: The same for moduli of complex numbers.
_LEAST_MODULUS = 2.0**-106

#: Number kind in a row by tensor kind; 0 for others.
_NUMBERS = {Kind.INTEGER: 1, Kind.UNSIGNED: 1, Kind.BOOL: 2}

#: Most tensors concatenated at once.
_AT_ONCE = 512

#: Lanes of a sketch as recorded.
_STORED = 256

_CODES = {
    torch.float32: "f",
    torch.float64: "d",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
}


class Measured(NamedTuple):
    """The parts of one tensor."""

    kind: Kind
    dtype: torch.dtype
    parts: Sequence[Part]


class Together(NamedTuple):
    """Tensors of one dtype and size that were measured together."""

    kind: Kind
    dtype: torch.dtype
    found: Rows


class _Found(NamedTuple):
    """Results of one part."""

    counts: list[int]
    least: float
    greatest: float
    variance: float
    mean: float


def fetched(tensors: Sequence[torch.Tensor]) -> bytes:
    """Returns the bytes of all `tensors`, which are on one device, one after the other. Waits for the device."""
    flat = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
    while len(flat) > 1:
        flat = [torch.cat(flat[first : first + _AT_ONCE]) for first in range(0, len(flat), _AT_ONCE)]
    if not flat:
        return b""
    everything = flat[0].cpu()
    return ctypes.string_at(everything.data_ptr(), everything.numel())


def tensors_of(measured: Sequence[Measured]) -> list[torch.Tensor]:
    """Returns the tensors that [`rows`] needs: all statistics, then all lanes."""
    parts = [part for each in measured for part in each.parts]
    numbers = [number for part in parts for number in (*part.counts, *part.numbers)]
    return numbers + [part.lanes for part in parts if part.lanes is not None]


def tensors_of_groups(groups: Sequence[Together]) -> list[torch.Tensor]:
    """Returns the tensors that [`rows_of_groups`] needs: all statistics, then all lanes."""
    numbers = [number for each in groups for number in (each.found.counts, *each.found.numbers)]
    return numbers + [each.found.lanes for each in groups if each.found.lanes is not None]


def rows_of_groups(groups: Sequence[Together], data: bytes) -> list[list[Row]]:
    """Decodes the rows of each group from the bytes of the tensors returned by [`tensors_of_groups`]."""
    numbers, place = [], 0
    for each in groups:
        size = each.found.counts.shape[1]
        counts = struct.unpack_from(f"<{LIMITS * size}q", data, place)
        others = struct.unpack_from(f"<{4 * size}f", data, place + 8 * len(counts))
        place += 8 * len(counts) + 4 * len(others)
        numbers.append([_Found(list(counts[tensor::size]), *others[tensor::size]) for tensor in range(size)])
    sketches: Iterator[bytes | None] = itertools.repeat(None)
    if place < len(data):
        lanes = torch.frombuffer(bytearray(data[place:]), dtype=torch.float32).view(-1, LANES).to(torch.float64)
        units = [unit(each.kind, each.dtype) for each, own in zip(groups, numbers) for _ in own]
        sketches = iter(_stored(lanes, units))
    found = []
    for each, own in zip(groups, numbers):
        measured = Measured(each.kind, each.dtype, [Part(each.found.elements, 0, [], (), None)])
        found.append([_row(measured, [tensor], next(sketches)) for tensor in own])
    return found


def rows(measured: Sequence[Measured], data: bytes, sketch: bool) -> list[Row]:
    """Decodes the rows of `measured` from the bytes of the tensors returned by [`tensors_of`]."""
    found, place = [], 0
    for each in measured:
        found.append([])
        for part in each.parts:
            layout = "<" + "".join(f"{tensor.numel()}{_CODES[tensor.dtype]}" for tensor in (*part.counts, *part.numbers))
            found[-1].append(_of_part(part, struct.unpack_from(layout, data, place)))
            place += struct.calcsize(layout)
    lanes = _sketches(measured, data, place) if sketch else [None] * len(measured)
    return [_row(each, parts, own) for each, parts, own in zip(measured, found, lanes)]


def _of_part(part: Part, numbers: tuple[float, ...]) -> _Found:
    width = part.counts[0].numel()
    end = width * len(part.counts)
    counts = [int(sum(numbers[place:end:width])) for place in range(width)]
    if not part.numbers:
        # For truth values the number of true ones tells everything.
        return _Found(counts, float(counts[0] == part.elements), float(counts[0] > 0), 0.0, 0.0)
    return _Found(counts, *numbers[end:])


def _row(measured: Measured, parts: Sequence[_Found], sketch: bytes | None) -> Row:
    kind, dtype = measured.kind, measured.dtype
    elements = sum(part.elements for part in measured.parts)
    error = None if dtype in (torch.float64, torch.complex128, torch.bool) else SUM_ERROR
    if kind in _NUMBERS:
        return _of_integers(measured, parts, elements, error, sketch)
    found = classes(elements, [sum(part.counts[place] for part in parts) for place in range(LIMITS)])
    if kind is Kind.COMPLEX:
        # They have no sentinels.
        found = found._replace(below=0, above=0)
    counts = [found.elements, found.zeros, found.nan, found.positive, found.negative, found.below + found.above]
    if not found.finite:
        return 0, counts, [None] * 4, None, error, sketch
    least, greatest = min(part.least for part in parts), max(part.greatest for part in parts)
    low: Optional[float] = least
    high: Optional[float] = greatest
    if kind is not Kind.COMPLEX:
        scale = unit(kind, dtype)
        low, high = extremes(found, dtype if dtype.itemsize > 1 else torch.float32, least * scale, greatest * scale)
    elif not math.isfinite(greatest) or error is not None and 0.0 < greatest < _LEAST_MODULUS:
        return 0, counts, [None] * 4, None, error, sketch
    # No zero is negative: a comparison does not distinguish the two.
    floats = [None if number is None else number + 0.0 for number in (low, high)]
    return 0, counts, [*floats, *_mean_and_norm(measured, parts, found.ordinary)], None, error, sketch


def _of_integers(measured: Measured, parts: Sequence[_Found], elements: int, error: float | None, sketch: bytes | None) -> Row:
    counts = [elements, elements - sum(part.counts[0] for part in parts), 0, 0, 0, 0]
    if not parts:
        return _NUMBERS[measured.kind], counts, [None] * 4, None, error, sketch
    integers = [int(min(part.least for part in parts)), int(max(part.greatest for part in parts))]
    if measured.kind is Kind.UNSIGNED:
        integers = [integer + (1 << 63) for integer in integers]
    # The number of true elements gives both exactly, as the host has them.
    true = elements - counts[1]
    sums = (true / elements, math.sqrt(true)) if measured.kind is Kind.BOOL else _mean_and_norm(measured, parts, elements)
    floats = [float(integers[0]), float(integers[1]), *sums]
    if integers[1] >= 1 << 63:
        return 3, counts, floats, [_as_signed(integer) for integer in integers], error, sketch
    return _NUMBERS[measured.kind], counts, floats, integers, error, sketch


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mean_and_norm(measured: Measured, parts: Sequence[_Found], summed: int) -> tuple[Optional[float], Optional[float]]:
    """Mean of the `summed` elements, and norm, if known."""
    scale = unit(measured.kind, measured.dtype)
    sizes = [part.elements for part in measured.parts]
    elements = sum(sizes)
    total, square = 0.0, 0.0
    for size, part in zip(sizes, parts):
        total += size * part.mean
        square += size / elements * (part.variance + part.mean * part.mean)
    mean = total / summed * scale if summed and math.isfinite(total) else None
    if not math.isfinite(square):
        return mean, None
    wide = measured.dtype in (torch.float64, torch.complex128, torch.bool)
    vanishing = square < (_LEAST_SQUARE_WIDE if wide else _LEAST_SQUARE)
    if vanishing and any(part.least != 0.0 or part.greatest != 0.0 for part in parts):
        return mean, None
    return mean, math.sqrt(square) * math.sqrt(elements) * scale


def _sketches(measured: Sequence[Measured], data: bytes, place: int) -> list[bytes | None]:
    """Returns the sketch of every tensor: its lanes begin at `place` of `data`."""
    if not measured:
        return []
    table = _lanes([part.lanes.dtype for each in measured for part in each.parts if part.lanes is not None], data[place:])
    totals, row = [], 0
    for each in measured:
        # None if only statistics were possible.
        count = sum(part.lanes is not None for part in each.parts)
        own, row = table[row : row + count], row + count
        if each.parts and not count:
            totals.append(torch.zeros(1, LANES, dtype=torch.float64, device="cpu"))
            continue
        if len(each.parts) != 1:
            # The first element of a piece is in the lane given by its position in the tensor.
            width = 2 if each.kind is Kind.COMPLEX else 1
            turned = [lanes.roll(width * part.first % LANES) for part, lanes in zip(each.parts, own)]
            own = torch.stack(turned).sum(0, keepdim=True) if turned else torch.zeros(1, LANES, dtype=torch.float64, device="cpu")
        totals.append(own)
    units = [unit(each.kind, each.dtype) for each in measured]
    there = [all(part.lanes is not None for part in each.parts) for each in measured]
    return [sketch if is_there else None for sketch, is_there in zip(_stored(torch.cat(totals), units), there)]


def _stored(lanes: torch.Tensor, units: Sequence[float]) -> list[bytes]:
    """Returns each row of lanes, times its unit, as it is recorded."""
    stored = torch.zeros(len(lanes), _STORED, dtype=torch.float32, device="cpu")
    stored[:, :LANES] = lanes * torch.tensor(units, dtype=torch.float64, device="cpu")[:, None]
    stored.masked_fill_(~stored.isfinite(), math.nan)
    size = _STORED * 4
    return [ctypes.string_at(stored.data_ptr() + number * size, size) for number in range(len(lanes))]


def _lanes(dtypes: Sequence[torch.dtype], data: bytes) -> torch.Tensor:
    """Decodes consecutive lanes of these dtypes to binary64."""
    found, start, end = [torch.empty(0, LANES, dtype=torch.float64, device="cpu")], 0, 0
    for dtype, alike in itertools.groupby(dtypes):
        start, end = end, end + LANES * dtype.itemsize * sum(1 for _ in alike)
        found.append(torch.frombuffer(bytearray(data[start:end]), dtype=dtype).view(-1, LANES).to(torch.float64))
    return torch.cat(found)
