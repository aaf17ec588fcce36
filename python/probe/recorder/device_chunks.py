"""A tensor in row-major order, a bounded piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import torch

#: Real numbers of a chunk at most; a multiple of the sketch's rows. Working memory is below 64 bytes for each.
CHUNK = 1 << 20

#: Numbers of a row of the sketch, which is how all sums are laid out.
ROW = 256


class Kind(Enum):
    """What the elements of a tensor are."""

    FLOAT = "float"
    COMPLEX = "complex"
    INTEGER = "integer"
    #: 64 bits without a sign: torch compares and converts them hardly anywhere.
    UNSIGNED = "unsigned"
    BOOL = "bool"


class Chunk(NamedTuple):
    """Elements that follow one another in row-major order."""

    kind: Kind
    #: One dimension, a type that arithmetic knows. Complex elements are two real numbers each, as a second dimension;
    #: unsigned ones have their bits in a signed type; truth values are 0 and 1.
    values: torch.Tensor
    #: How many full chunks come before.
    index: int

    @property
    def rows(self) -> int:
        """Rows of the sketch; the last may be short."""
        return -(-self.values.numel() // ROW)

    @property
    def classified(self) -> torch.dtype | None:
        """The type in which elements are told finite from not; `None` if all are finite."""
        return self.values.dtype if self.kind in (Kind.FLOAT, Kind.COMPLEX) else None


_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
#: Types that hardly any operation knows, and such that hold the same numbers.
_WIDER = {
    # Torch has them since 2.3.
    getattr(torch, name): wider
    for name, wider in (("uint16", torch.int32), ("uint32", torch.int64))
    if hasattr(torch, name)
}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
_COMPLEX = {torch.complex128, torch.complex64, torch.complex32}


def kind_of(dtype: torch.dtype) -> Kind | None:
    """What elements of `dtype` are; `None` if they are not numbers."""
    if dtype in _FLOATS or str(dtype).startswith("torch.float8"):
        return Kind.FLOAT
    if dtype in _INTEGERS or dtype in _WIDER:
        return Kind.INTEGER
    if dtype in _COMPLEX:
        return Kind.COMPLEX
    return {torch.bool: Kind.BOOL, getattr(torch, "uint64", None): Kind.UNSIGNED}.get(dtype)


def chunks(tensor: torch.Tensor, kind: Kind) -> Iterator[Chunk]:
    """Cuts `tensor`. Chunks but the last are full."""
    size = CHUNK // 2 if kind is Kind.COMPLEX else CHUNK
    if tensor.is_conj() or tensor.is_neg():
        # The bits in memory have another sign. A slice of such a tensor resolves as it is copied.
        slices = (piece.resolve_conj().resolve_neg() for piece in _flat(tensor, size))
    else:
        slices = _flat(tensor, size)
    for index, flat in enumerate(_regular(slices, size)):
        yield Chunk(kind, _numbers(flat, kind), index)


def _numbers(flat: torch.Tensor, kind: Kind) -> torch.Tensor:
    if kind is Kind.BOOL:
        # Any byte but 0 is true.
        return flat.view(torch.uint8).ne(0).view(torch.uint8)
    if kind is Kind.UNSIGNED:
        return flat.view(torch.int64)
    if kind is Kind.COMPLEX:
        return torch.view_as_real(flat)
    if kind is Kind.INTEGER:
        return flat.to(_WIDER.get(flat.dtype, flat.dtype))
    return flat if flat.dtype in _FLOATS else flat.to(torch.float32)


def _flat(tensor: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    """Pieces of at most `size` elements, in row-major order; copied only where memory has another order."""
    count = tensor.numel()
    if count == 0:
        return
    if count <= size:
        yield tensor.reshape(-1)
        return
    if tensor.is_contiguous():
        yield from tensor.view(-1).split(size)
        return
    within = count // tensor.shape[0]
    if within <= size:
        for slab in tensor.split(size // within):
            yield slab.reshape(-1)
        return
    for slab in tensor.unbind(0):
        yield from _flat(slab, size)


def _regular(pieces: Iterator[torch.Tensor], size: int) -> Iterator[torch.Tensor]:
    """The same elements in pieces of exactly `size`, but for the last."""
    held: list[torch.Tensor] = []
    count = 0
    for piece in pieces:
        while count + piece.numel() >= size:
            head, piece = piece[: size - count], piece[size - count :]
            held.append(head)
            yield held[0] if len(held) == 1 else torch.cat(held)
            held, count = [], 0
        if piece.numel():
            held.append(piece)
            count += piece.numel()
    if held:
        yield held[0] if len(held) == 1 else torch.cat(held)
