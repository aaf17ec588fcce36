"""Signs and lanes of the sketch, version 1, as tables on the device. `docs/formats.md` defines them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from probe.recorder.device_chunks import CHUNK, ROW
from probe.recorder.device_streams import Shared

#: Lanes of a sketch, and elements of a row.
LANES = ROW

#: Rows of a chunk.
ROWS = CHUNK // LANES

#: Chunks whose signs are kept: 1 MiB each. Those of later ones are made again.
_KEPT = 32

#: Where integers of 64 bits multiply and shift as they do on the host. Other devices are given the words.
_EXACT_INTEGERS = frozenset({"cpu", "cuda"})


class Signs(NamedTuple):
    """How the rows of a chunk enter the sketch."""

    #: 1 or -1 for every element of every row.
    signs: torch.Tensor
    #: For every row and lane the column of the row that is added to the lane.
    columns: torch.Tensor

    def head(self, rows: int) -> Signs:
        """Those of the first rows."""
        return self if rows == ROWS else Signs(self.signs[:rows], self.columns[:rows])

    def rotated(self, numbers: torch.Tensor) -> torch.Tensor:
        """Rows of `numbers` with their signs, in the order of the lanes."""
        return (numbers * self.signs).gather(1, self.columns)


class _Table(NamedTuple):
    signs: torch.Tensor
    rotations: torch.Tensor
    #: For the first chunk only, which all tensors have; it is eight times the signs.
    columns: torch.Tensor | None


class Tables:
    """Tables of signs, made when first asked for. At most 42 MiB are kept on each device."""

    def __init__(self) -> None:
        self._shared = Shared()

    def of(self, device: torch.device, index: int, rows: int, stream: Any) -> Signs:
        """The signs of the first `rows` rows of chunk `index`, ready for use in `stream`, which is the current one."""
        table = self._shared.get((device, index), device, stream, lambda: _make(device, index), index < _KEPT)
        columns = table.columns if table.columns is not None else _columns(table.rotations)
        return Signs(table.signs, columns).head(rows)


def _make(device: torch.device, index: int) -> _Table:
    """The table of chunk `index`."""
    first = index * ROWS
    where = device if device.type in _EXACT_INTEGERS else torch.device("cpu")
    rows = torch.arange(first, first + ROWS, dtype=torch.int64, device=where)
    words = mix(rows[:, None] * 4 + torch.arange(4, dtype=torch.int64, device=where)).to(device)
    rotations = (mix(rows ^ 0xABCDEF) & (LANES - 1)).to(device)
    # Words have little-endian bytes: byte j holds the signs of elements 8 j to 8 j + 7.
    bits = torch.cat([torch.full((1,), 1 << bit, dtype=torch.uint8, device=device) for bit in range(8)])
    negative = (words.view(torch.uint8)[:, :, None] & bits).ne(0).view(ROWS, LANES)
    signs = negative.to(torch.int8).mul_(-2).add_(1)
    return _Table(signs, rotations, _columns(rotations) if index == 0 else None)


def _columns(rotations: torch.Tensor) -> torch.Tensor:
    lanes = torch.arange(LANES, dtype=torch.int64, device=rotations.device)
    return (lanes - rotations[:, None]).bitwise_and_(LANES - 1)


def mix(z: torch.Tensor) -> torch.Tensor:
    """Output function of splitmix64 on the 64 bits of signed integers."""
    z = z + _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifted right with zeros coming in."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
