"""Small tensors of one type and size, copied on their device as they come and measured together.

To copy a tensor is one launch, and to measure many rows takes hardly more of them than to measure one tensor. What is still alone when numbers
are fetched is fetched as it is, and measured on the host.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Optional

import torch

from probe.recorder.device_chunks import Kind
from probe.recorder.device_sums import Rows, Sums

#: Elements of the largest tensor that is copied. Larger ones are worth launches of their own.
LARGEST = 1 << 18

#: Elements that the copies of one queue have at most, 32 MiB of float32: to compare them takes 64 MiB.
_HELD = 1 << 23


class _Queue:
    """What waits in one stream of a device."""

    __slots__ = ("held", "open")

    def __init__(self) -> None:
        #: Elements of all copies.
        self.held = 0
        #: Groups that take tensors of this type and so many elements.
        self.open: dict[tuple[torch.dtype, int], Group] = {}


class Group:
    """Tensors of one type and size, in one queue."""

    __slots__ = ("copies", "key", "measured", "queue", "rows")

    def __init__(self, queue: _Queue, key: tuple[torch.dtype, int]) -> None:
        self.queue = queue
        #: Type, and elements of each.
        self.key = key
        #: The elements of each in row-major order, until they are released.
        self.copies: list[torch.Tensor] = []
        #: What was measured of them together.
        self.rows: Optional[Rows] = None
        #: Or what stands for each, or why nothing does, where that could not be done.
        self.measured: list[Any] = []


class Groups:
    """The groups of one step."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self._queues: dict[tuple[torch.device, Any], _Queue] = {}
        # Backward passes have threads of their own, which come in whenever torch's operations give way.
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Begins a step: what was not fetched of others takes no more."""
        self._queues = {}

    def take(self, kind: Kind, tensor: torch.Tensor, stream: Any) -> tuple[Group, int] | None:
        """Copies `tensor` in `stream`, which is the current one: its group, and its place there. None where it is better measured by
        itself. Raises what torch raises."""
        elements, dtype = tensor.numel(), tensor.dtype
        if kind is not Kind.FLOAT or dtype.itemsize == 1 or not 0 < elements <= LARGEST or self._sums.is_fused:
            return None
        place = (tensor.device, stream)
        queue = self._queues.get(place) or self._queues.setdefault(place, _Queue())
        if queue.held + elements > _HELD:
            self._make_room(queue, stream)
            if queue.held + elements > _HELD:
                return None
        copy = tensor.clone(memory_format=torch.contiguous_format)
        # Operations cost more than what is asked here, also where they do nothing.
        if copy.is_neg():
            copy = copy.resolve_neg()
        if copy.dim() != 1:
            copy = copy.view(-1)
        key = (dtype, elements)
        with self._lock:
            group = queue.open.get(key)
            if group is None:
                group = queue.open[key] = Group(queue, key)
            group.copies.append(copy)
            queue.held += elements
            return group, len(group.copies) - 1

    def measure(self, group: Group, stream: Any) -> None:
        """Starts to measure the tensors of `group` in `stream`, which is the current one and waits for theirs, unless there is one
        alone; takes no more into it. Where theirs is another stream, they may be released when the results are there, not before."""
        with self._lock:
            if group.queue.open.get(group.key) is group:
                del group.queue.open[group.key]
        if group.rows is None and len(group.copies) > 1:
            group.rows = self._sums.of_rows(torch.stack(group.copies), stream)

    def release(self, group: Group) -> None:
        """Gives back the memory of the copies."""
        with self._lock:
            group.queue.held -= len(group.copies) * group.key[1]
            group.copies = []

    def _make_room(self, queue: _Queue, stream: Any) -> None:
        """Measures what can be measured together. What that fails for is tried again when it is fetched."""
        with self._lock:
            several = [group for group in queue.open.values() if len(group.copies) > 1]
        for group in several:
            with contextlib.suppress(RuntimeError):
                self.measure(group, stream)
                self.release(group)
