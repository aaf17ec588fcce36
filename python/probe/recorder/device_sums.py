"""What the two ways of summing have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch.nn.functional import pad

from probe.recorder.device_chunks import ROW, Chunk
from probe.recorder.device_sketch import Signs


class Part(NamedTuple):
    """Results of one chunk, on the device."""

    #: Short one-dimensional tensors: counts, least, greatest, and what else the sums need.
    scalars: tuple[torch.Tensor, ...]
    #: One tensor of a size that is the same for all chunks.
    block: torch.Tensor | None


class Found(NamedTuple):
    """Results of one chunk, on the host. Sums are in units of `unit`, a power of two."""

    counts: list[int]
    least: float
    greatest: float
    total: float
    norm: float
    unit: float


class Sums(Protocol):
    """A way to sum."""

    @property
    def narrow(self) -> torch.dtype:
        """The type in which floats are fetched that are not wider themselves."""

    def of(self, chunk: Chunk, limits: torch.Tensor | None, signs: Signs | None) -> Part:
        """Starts to measure a chunk. `limits` are those of `chunk.classified`."""

    def finish(
        self, scalars: Sequence[Sequence[list[float]]], blocks: torch.Tensor | None, sketch: bool
    ) -> tuple[list[Found], torch.Tensor | None]:
        """Results of chunks on the host, and their lanes in binary64, from the numbers of their parts."""


def in_rows(numbers: torch.Tensor, rows: int, dtype: torch.dtype, columns: int = ROW) -> torch.Tensor:
    """`numbers` as rows of `dtype`, with zeros behind them. Shares their memory where nothing is to be done."""
    numbers = numbers.to(dtype)
    missing = rows * columns - numbers.numel()
    return (pad(numbers, (0, missing)) if missing else numbers).view(rows, columns)


_BITS = {
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
}


def power_of_two(magnitudes: torch.Tensor) -> torch.Tensor:
    """The greatest normal power of two up to each magnitude; the least one for what is smaller."""
    bits, exponent = _BITS[magnitudes.dtype]
    return (magnitudes.view(bits) & exponent).view(magnitudes.dtype).clamp_min(torch.finfo(magnitudes.dtype).smallest_normal)


def magnitude(numbers: torch.Tensor) -> torch.Tensor:
    """The greatest magnitude, as one element. `numbers` are finite."""
    return numbers.abs().amax().view(1)
