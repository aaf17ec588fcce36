"""The sketch, version 2: signs as tables on the device. `docs/formats.md` defines it."""

from __future__ import annotations

from typing import Any

import torch

from probe.recorder.device_streams import Shared

#: Lanes of a sketch: element `i` is in lane `i` modulo this.
LANES = 251

#: Elements after which the signs repeat.
PERIOD = 1 << 24

#: Elements of the smaller table, enough for most tensors.
_FEW = 1 << 20

#: Devices whose 64-bit integers multiply and shift as on the host. Other devices are given the words.
_EXACT_INTEGERS = frozenset({"cpu", "cuda"})


class Signs:
    """Tables of 1 and -1, created on first use: 17 MiB on each device."""

    def __init__(self) -> None:
        self._shared = Shared()

    def apply(self, buffer: torch.Tensor, flat: torch.Tensor, first: int, stream: Any) -> None:
        """Multiplies `flat`, the head of `buffer`, by the signs of the elements from `first` on, in `stream`, which
        is the current one."""
        count = flat.numel()
        start = first % PERIOD
        end = start + count
        if end <= PERIOD:
            flat.mul_(self.table(buffer.device, end, stream)[start:end])
            return
        whole = self.table(buffer.device, PERIOD, stream)
        if start == 0 and count <= 2 * PERIOD <= buffer.numel():
            # The contents after the numbers do not matter.
            buffer[: 2 * PERIOD].view(2, PERIOD).mul_(whole)
            return
        flat.mul_(torch.cat([whole[start:], whole[: end - PERIOD]]))

    def of_rows(self, rows: torch.Tensor, stream: Any) -> torch.Tensor:
        """Returns the lanes of each row, of at most a period of elements, in `stream`, which is the current one."""
        number, count = rows.shape
        end = room(count, twice=False)
        buffer = torch.empty(number, end, dtype=rows.dtype, device=rows.device)
        torch.mul(rows, self.table(rows.device, count, stream)[:count], out=buffer[:, :count])
        if count < end:
            buffer[:, count:].zero_()
        return buffer.view(number, -1, LANES).sum(1)

    def table(self, device: torch.device, end: int, stream: Any) -> torch.Tensor:
        """Returns the signs of the elements before `end`, or of a whole period, ready for use in `stream`, which is
        the current one."""
        size = _FEW if end <= _FEW and (device, PERIOD) not in self._shared else PERIOD
        return self._shared.get((device, size), device, stream, lambda: _signs(device, size))


def lanes(buffer: torch.Tensor, count: int) -> torch.Tensor:
    """Sums the first `count` numbers of `buffer`, which has room for whole rows of lanes after them."""
    end = room(count, twice=False)
    if count < end:
        buffer[count:end].zero_()
    whole = buffer if buffer.numel() == end else buffer[:end]
    return whole.view(-1, LANES).sum(0)


def room(count: int, twice: bool = True) -> int:
    """Returns the size of a buffer for `count` numbers: whole rows of lanes, and, beyond one period of signs, `twice`
    as much as a period, so that it can be multiplied at once."""
    return -(-(2 * PERIOD if twice and PERIOD < count <= 2 * PERIOD else count) // LANES) * LANES


def _signs(device: torch.device, size: int) -> torch.Tensor:
    where = device if device.type in _EXACT_INTEGERS else torch.device("cpu")
    words = mix(torch.arange(size // 64, dtype=torch.int64, device=where)).to(device)
    # Words have little-endian bytes: byte j holds the signs of elements 8 j to 8 j + 7.
    bits = torch.cat([torch.full((1,), 1 << bit, dtype=torch.uint8, device=device) for bit in range(8)])
    negative = (words.view(torch.uint8)[:, None] & bits).ne(0).view(size)
    return negative.to(torch.int8).mul_(-2).add_(1)


def mix(z: torch.Tensor) -> torch.Tensor:
    """Output function of splitmix64 on the 64 bits of signed integers."""
    z = z + _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts right, filling with zeros."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
