"""A tensor in row-major order, a bounded piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import torch

#: Bytes of a piece's binary32 copy.
_COPY = 64 << 20

#: The same for dtypes of fewer bytes, so that a piece has 64 MiB of them.
_COPY_OF_SHORT = 128 << 20


class Kind(Enum):
    """Kind of a tensor's elements."""

    FLOAT = "float"
    DOUBLE = "double"
    COMPLEX = "complex"
    INTEGER = "integer"
    #: 64 bits without a sign: torch supports almost no comparison or conversion of them.
    UNSIGNED = "unsigned"
    BOOL = "bool"


class Piece(NamedTuple):
    """Consecutive elements in row-major order."""

    #: Any shape and strides, but at least one dimension.
    values: torch.Tensor
    #: Number of elements before these.
    first: int


_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
#: Dtypes that few operations support, and wider ones that hold the same numbers.
WIDER = {
    # Torch has them since 2.3.
    getattr(torch, name): wider
    for name, wider in (("uint16", torch.int32), ("uint32", torch.int64))
    if hasattr(torch, name)
}
_FLOATS = {torch.float32, torch.float16, torch.bfloat16}
_COMPLEX = {torch.complex128, torch.complex64, torch.complex32}


def kind_of(dtype: torch.dtype) -> Kind | None:
    """Returns the kind of elements of `dtype`; `None` if they are not numbers."""
    if dtype in _FLOATS or str(dtype).startswith("torch.float8"):
        return Kind.FLOAT
    if dtype is torch.float64:
        return Kind.DOUBLE
    if dtype in _INTEGERS or dtype in WIDER:
        return Kind.INTEGER
    if dtype in _COMPLEX:
        return Kind.COMPLEX
    return {torch.bool: Kind.BOOL, getattr(torch, "uint64", None): Kind.UNSIGNED}.get(dtype)


def elements_at_once(dtype: torch.dtype) -> int:
    """Most elements of a piece."""
    if dtype.itemsize == 2 and not dtype.is_complex:
        return _COPY_OF_SHORT // 4
    # Complex numbers are processed in several copies.
    return _COPY // (max(dtype.itemsize, 4) * (4 if dtype.is_complex else 1))


def pieces(tensor: torch.Tensor, size: int) -> Iterator[Piece]:
    """Cuts a non-empty `tensor` into pieces of at most `size` elements. Copies nothing."""
    if tensor.dim() == 0:
        tensor = tensor.view(1)
    if tensor.numel() <= size:
        yield Piece(tensor.view(-1) if tensor.is_contiguous() else tensor, 0)
        return
    first = 0
    for values in _cut(tensor, size):
        yield Piece(values, first)
        first += values.numel()


def _cut(tensor: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    if tensor.is_contiguous():
        yield from tensor.view(-1).split(size)
        return
    within = tensor.numel() // tensor.shape[0]
    if within <= size:
        yield from tensor.split(size // within)
        return
    for slab in tensor.unbind(0):
        yield from _cut(slab, size)
