"""Storages of tensors: which of them are the same memory, and their bits."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.multiprocessing.reductions import StorageWeakRef

#: Integers of the same size as an element: equal bits, and nothing else, are equal then.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class Held:
    """A storage known by its object. Its address is not reused while this exists, although its memory may be freed."""

    __slots__ = ("_reference", "_place")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._reference = StorageWeakRef(storage)
        self._place = (storage.data_ptr(), storage.nbytes())

    def is_of(self, storage: torch.UntypedStorage) -> bool:
        """Returns true if the storage still has the memory that it had."""
        return self._place == (storage.data_ptr(), storage.nbytes())

    def is_gone(self) -> bool:
        """Returns true if no tensor has the storage any more."""
        return bool(self._reference.expired())


def identity(storage: torch.UntypedStorage) -> int:
    """Returns a number that no other living or held storage has."""
    return int(storage._cdata)


def version_of(tensor: torch.Tensor) -> int | None:
    """Returns how often a tensor was written to, as torch counts; None if it does not count."""
    return None if tensor.is_inference() else int(tensor._version)


def has_memory(tensor: Any) -> bool:
    """Returns true for a tensor of plain memory whose elements can be read, and that has any."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not is_functorch_wrapped_tensor(tensor)
        and tensor.numel() > 0
        and tensor.untyped_storage().data_ptr() != 0
        and tensor.element_size() in _WORDS
    )


def words(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Returns the words that lie in `storage` where `tensor` has its elements: of 16 bytes, two words each."""
    size, stride, offset = tuple(tensor.size()), tuple(tensor.stride()), tensor.storage_offset()
    if tensor.element_size() == 16:
        size, stride, offset = (*size, 2), (*(2 * step for step in stride), 1), 2 * offset
    found = torch.empty(0, dtype=_WORDS[tensor.element_size()], device=storage.device)
    return found.set_(storage, offset, size, stride)


def everything(storage: torch.UntypedStorage) -> torch.Tensor:
    """Returns all bytes of a storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
