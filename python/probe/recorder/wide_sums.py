"""Sums in binary64."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from probe.recorder import device_classes as classes
from probe.recorder.device_chunks import Chunk, Kind
from probe.recorder.device_sketch import Signs
from probe.recorder.device_sums import Found, Part, in_rows, magnitude, power_of_two

_WIDE = torch.float64

#: Types whose squares may be beyond binary64.
_LARGE = frozenset({torch.float64})


class WideSums:
    """For devices that compute in binary64."""

    narrow = _WIDE

    def of(self, chunk: Chunk, limits: torch.Tensor | None, signs: Signs | None) -> Part:
        if chunk.kind is Kind.COMPLEX:
            return _of_complex(chunk, limits, signs)
        values = chunk.values
        if limits is not None:
            counts = classes.counts_of_floats(values, limits)
            least, greatest = classes.extremes(values)
            rows = in_rows(classes.ordinary(values), chunk.rows, _WIDE)
        else:
            counts = classes.nonzero(values)
            least, greatest = classes.integer_extremes(values, chunk.kind is Kind.UNSIGNED)
            wide = _unsigned(values) if chunk.kind is Kind.UNSIGNED else values
            rows = in_rows(wide, chunk.rows, _WIDE)
        lanes = _lanes(rows, signs)
        unit: tuple[torch.Tensor, ...] = ()
        if values.dtype in _LARGE:
            unit = (power_of_two(magnitude(rows)),)
            rows = rows / unit[0]
        return Part((counts, least, greatest, rows.sum().view(1), _norm(rows), *unit), lanes)

    def finish(
        self, scalars: Sequence[Sequence[list[float]]], blocks: torch.Tensor | None, sketch: bool
    ) -> tuple[list[Found], torch.Tensor | None]:
        found = []
        for counts, least, greatest, total, norm, *unit in scalars:
            scale = unit[0][0] if unit else 1.0
            found.append(Found([int(count) for count in counts], least[0], greatest[0], total[0], norm[0], scale))
        return found, blocks


def _of_complex(chunk: Chunk, limits: torch.Tensor | None, signs: Signs | None) -> Part:
    assert limits is not None
    largest = classes.largest_part(chunk.values)
    counts = classes.counts_of_floats(largest, limits)
    parts = chunk.values.to(_WIDE)
    lanes = None
    if signs is not None:
        lanes = _lanes(in_rows(classes.finite(parts).view(-1), chunk.rows, _WIDE), signs)
    # An element counts if both of its parts are finite.
    finite = largest.isfinite()
    parts = parts.where(finite[:, None], 0.0)
    moduli = torch.hypot(parts[:, 0], parts[:, 1])
    least = moduli.where(finite, float("inf")).amin(0, keepdim=True)
    greatest = moduli.where(finite, -float("inf")).amax(0, keepdim=True)
    unit: tuple[torch.Tensor, ...] = ()
    if chunk.values.dtype in _LARGE:
        unit = (power_of_two(magnitude(parts)),)
        parts = parts / unit[0]
        moduli = torch.hypot(parts[:, 0], parts[:, 1])
    return Part((counts, least, greatest, moduli.sum().view(1), _norm(parts), *unit), lanes)


def _norm(numbers: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(numbers).view(1)


def _lanes(rows: torch.Tensor, signs: Signs | None) -> torch.Tensor | None:
    return None if signs is None else signs.rotated(rows).sum(0)


def _unsigned(bits: torch.Tensor) -> torch.Tensor:
    """Unsigned integers in binary64, rounded once; `bits` holds theirs."""
    low, high = bits & 0xFFFF_FFFF, (bits >> 32) & 0xFFFF_FFFF
    return high.to(_WIDE).mul_(2.0**32).add_(low)
