"""Small tensors of one dtype and size, copied on their device as they come and measured together.

Copying a tensor, or all tensors of a call that have the same shape, is one launch, and measuring many rows takes
hardly more launches than measuring one tensor. A tensor still alone at fetch time is fetched as it is, and measured
on the host.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch

from probe.recorder.device_chunks import Kind
from probe.recorder.device_sums import Rows, Sums

#: Elements of the largest tensor that is copied. Larger ones are worth launches of their own.
LARGEST = 1 << 18

#: Most elements that the copies of one queue have, 32 MiB of float32: comparing them takes 64 MiB.
_HELD = 1 << 23


class _Queue:
    """Copies waiting in one stream of a device."""

    __slots__ = ("held", "open")

    def __init__(self) -> None:
        #: Elements of all copies.
        self.held = 0
        #: Groups that accept tensors of this dtype and number of elements.
        self.open: dict[tuple[torch.dtype, int], Group] = {}


class Group:
    """Tensors of one dtype and size, in one queue."""

    __slots__ = ("blocks", "key", "measured", "queue", "rows", "size")

    def __init__(self, queue: _Queue, key: tuple[torch.dtype, int]) -> None:
        self.queue = queue
        #: Dtype, and number of elements of each tensor.
        self.key = key
        #: Elements of the tensors, a row each in row-major order, in as many blocks as they came in; kept until
        #: released.
        self.blocks: list[torch.Tensor] = []
        #: Number of tensors.
        self.size = 0
        #: Results of measuring them together.
        self.rows: Optional[Rows] = None
        #: Placeholders for each tensor, or why there is none, if they could not be measured together.
        self.measured: list[Any] = []

    def copies(self) -> Iterator[torch.Tensor]:
        """Yields the elements of each tensor."""
        for block in self.blocks:
            yield from block.view(-1, self.key[1]).unbind(0)


class Groups:
    """The groups of one step."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self._queues: dict[tuple[torch.device, Any], _Queue] = {}
        # Backward passes have threads of their own, which may run whenever a torch operation yields.
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Begins a step: groups left over from earlier steps accept no more tensors."""
        self._queues = {}

    def takes(self, kind: Kind, tensor: torch.Tensor) -> bool:
        """Returns true if tensors such as this one are better measured with others."""
        return kind is Kind.FLOAT and 0 < tensor.numel() <= LARGEST and tensor.dtype.itemsize > 1

    def take(self, tensors: Sequence[torch.Tensor], stream: Any) -> list[tuple[Group, int]]:
        """Copies `tensors`, which are alike, in `stream`, which is the current one. Returns the group and place of
        each, for as many as there is room for. Raises what torch raises."""
        elements, place = tensors[0].numel(), (tensors[0].device, stream)
        queue = self._queues.get(place) or self._queues.setdefault(place, _Queue())
        key = (tensors[0].dtype, elements)
        taken: list[tuple[Group, int]] = []
        while len(taken) < len(tensors):
            if queue.held + elements > _HELD:
                self._make_room(queue, stream)
            room = (_HELD - queue.held) // elements
            if room <= 0:
                break
            some = tensors[len(taken) : len(taken) + room]
            rows = in_rows(some) if len(some) > 1 else None
            blocks = [_in_row(tensor) for tensor in some] if rows is None else [rows]
            with self._lock:
                group = queue.open.get(key)
                if group is None:
                    group = queue.open[key] = Group(queue, key)
                group.blocks += blocks
                taken += [(group, group.size + place) for place in range(len(some))]
                group.size += len(some)
                queue.held += len(some) * elements
        return taken

    def measure(self, group: Group, stream: Any) -> None:
        """Starts measuring the tensors of `group` in `stream`, which is the current one and waits for theirs, unless
        there is only one; closes the group. If theirs is another stream, they may only be released once the results
        have arrived."""
        with self._lock:
            if group.queue.open.get(group.key) is group:
                del group.queue.open[group.key]
        if group.rows is None and group.size > 1:
            blocks = [block.view(-1, group.key[1]) for block in group.blocks]
            group.rows = self._sums.of_rows(blocks[0] if len(blocks) == 1 else torch.cat(blocks), stream)

    def release(self, group: Group) -> None:
        """Frees the memory of the copies."""
        with self._lock:
            group.queue.held -= group.size * group.key[1]
            group.blocks, group.size = [], 0

    def _make_room(self, queue: _Queue, stream: Any) -> None:
        """Measures whatever can be measured together. Anything that fails is tried again when it is fetched."""
        with self._lock:
            several = [group for group in queue.open.values() if group.size > 1]
        for group in several:
            with contextlib.suppress(RuntimeError):
                self.measure(group, stream)
                self.release(group)


def alike(tensors: Sequence[torch.Tensor]) -> dict[tuple[torch.device, torch.dtype, torch.Size], list[int]]:
    """Groups the indices of `tensors` by device, dtype and shape."""
    found: dict[tuple[torch.device, torch.dtype, torch.Size], list[int]] = {}
    for place, tensor in enumerate(tensors):
        found.setdefault((tensor.device, tensor.dtype, tensor.shape), []).append(place)
    return found


def in_rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Copies non-empty tensors that are alike, a row each, with one launch; None if their elements are not as they
    lie in memory."""
    if all(tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj() for tensor in tensors):
        return torch.stack(tensors).reshape(len(tensors), -1)  # type: ignore[arg-type]
    return None


def _in_row(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in row-major order."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    # Operations cost more than this check, even if they do nothing.
    return copy.resolve_neg() if copy.is_neg() else copy
