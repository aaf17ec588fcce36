"""Results of many tensors: brought to the host in few copies, and finished there."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Optional

import torch

from probe.recorder.device_chunks import ROW, Kind
from probe.recorder.device_classes import classes
from probe.recorder.device_sums import Found, Part

#: 0 float, 1 integer, 2 truth value, 3 unsigned integer of which some are beyond 63 bits; elements, zeros, NaN, +Inf,
#: -Inf, sentinels; least, greatest, mean (NaN where there is none) and norm; least and greatest as integers (of kind 3: their 64 bits).
Statistics = tuple[int, list[int], Optional[list[float]], Optional[list[int]]]

#: Statistics, and the lanes of the sketch as little-endian binary32.
Row = tuple[int, list[int], Optional[list[float]], Optional[list[int]], Optional[bytes]]

_LANE_BYTES = 4


def fetched(parts: Sequence[Part], narrow: torch.dtype) -> tuple[list[list[list[float]]], torch.Tensor | None]:
    """Scalars and blocks of `parts` on the host: one copy for all integers, one for each type of float, one for blocks.
    Floats of less than `narrow` become that."""
    held: dict[torch.dtype, list[torch.Tensor]] = {}
    places: list[list[tuple[torch.dtype, int]]] = []
    for part in parts:
        places.append([])
        for numbers in part.scalars:
            same = held.setdefault(numbers.dtype, [])
            places[-1].append((numbers.dtype, len(same)))
            same.append(numbers)
    lists = _lists(held, narrow)
    blocks = [part.block for part in parts if part.block is not None]
    scalars = [[lists[dtype][place] for dtype, place in of_part] for of_part in places]
    return scalars, torch.stack(blocks).cpu() if blocks else None


def _lists(held: dict[torch.dtype, list[torch.Tensor]], narrow: torch.dtype) -> dict[torch.dtype, list[list[float]]]:
    """The numbers of every tensor, by its type."""
    alike: dict[torch.dtype, list[torch.dtype]] = {}
    for dtype in held:
        common = torch.promote_types(dtype, narrow) if dtype.is_floating_point else torch.int64
        alike.setdefault(common, []).append(dtype)
    lists: dict[torch.dtype, list[list[float]]] = {}
    for common, dtypes in alike.items():
        numbers = torch.cat([torch.cat(held[dtype]).to(common) for dtype in dtypes]).tolist()
        start = 0
        for dtype in dtypes:
            lists[dtype] = []
            for tensor in held[dtype]:
                end = start + tensor.shape[0]
                lists[dtype].append(numbers[start:end])
                start = end
    return lists


def row(kind: Kind, elements: int, parts: Sequence[Found]) -> Statistics:
    """Statistics of a tensor from those of its chunks."""
    if kind in (Kind.FLOAT, Kind.COMPLEX):
        counts = classes(elements, [sum(column) for column in zip(*(part.counts for part in parts))] or [0] * 7)
        if kind is Kind.COMPLEX:
            counts[-1] = 0
    else:
        counts = [elements, elements - sum(part.counts[0] for part in parts), 0, 0, 0, 0]
    sentinels = counts[-1]
    finite = elements - sum(counts[2:-1])
    number = {Kind.INTEGER: 1, Kind.UNSIGNED: 1, Kind.BOOL: 2}.get(kind, 0)
    if finite == 0:
        return number, counts, None, None
    least, greatest = min(part.least for part in parts), max(part.greatest for part in parts)
    mean, norm = _mean_and_norm(finite - sentinels, parts)
    if number == 0:
        # A modulus beyond binary64 is infinite, and so is the sum.
        mean = greatest if math.isinf(greatest) else mean
        return number, counts, [least + 0.0, greatest + 0.0, mean, norm], None
    integers = [int(least), int(greatest)]
    if kind is Kind.UNSIGNED:
        integers = [integer + (1 << 63) for integer in integers]
    floats = [float(integers[0]), float(integers[1]), mean, norm]
    if integers[1] >= 1 << 63:
        return 3, counts, floats, [_as_signed(integer) for integer in integers]
    return number, counts, floats, integers


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mean_and_norm(summed: int, parts: Sequence[Found]) -> tuple[float, float]:
    unit = max(part.unit for part in parts)
    total = math.fsum(part.total * (part.unit / unit) for part in parts)
    norm = math.hypot(*(part.norm * (part.unit / unit) for part in parts))
    return total / summed * unit if summed else math.nan, norm * unit


def sketches(lanes: torch.Tensor | None, counts: Sequence[int]) -> list[bytes]:
    """The sketch of every tensor, from the lanes of its `counts` chunks."""
    if lanes is None:
        return [bytes(ROW * _LANE_BYTES)] * len(counts)
    if any(count != 1 for count in counts):
        lanes = torch.stack([own.sum(0) for own in lanes.split(list(counts))])
    stored = lanes.to(torch.float32)
    stored = stored.where(stored.isfinite(), float("nan")).contiguous()
    size = ROW * _LANE_BYTES
    return [ctypes.string_at(stored.data_ptr() + place * size, size) for place in range(len(counts))]
