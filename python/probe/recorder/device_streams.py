"""Device queues: results computed in one are not read too early in another. Nothing here waits on the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import torch

from probe.private.streams import Streams, capturing

T = TypeVar("T")

_STREAMS = Streams()
#: Function that tells whether a graph is being captured, by kind of device.
_CAPTURING: dict[str, Callable[[], bool]] = {}


def _module(device: torch.device) -> Any:
    """Returns `torch.cuda`, `torch.npu` and the like; `None` for devices that compute in order."""
    module = None if device.type == "cpu" else getattr(torch, device.type, None)
    return module if hasattr(module, "current_stream") and hasattr(module, "Event") else None


def current_stream(device: torch.device) -> Any:
    """Returns the queue that operations on `device` currently go to; `None` if there is only one."""
    module = _module(device)
    return None if module is None else _STREAMS.current(device, module)


def is_capturing(device: torch.device) -> bool:
    """Returns true if operations are being captured into a graph, to be replayed later."""
    kind = device.type
    asked = _CAPTURING.get(kind)
    if asked is None:
        asked = _CAPTURING[kind] = capturing(kind, None if kind == "cpu" else getattr(torch, kind, None))
    return bool(asked())


def wait_for(device: torch.device, streams: Iterable[Any]) -> None:
    """Makes subsequent work in the current queue wait for the work now in `streams`."""
    current = current_stream(device)
    if current is None:
        return
    seen = [current]
    for stream in streams:
        if stream is not None and stream not in seen:
            seen.append(stream)
            current.wait_stream(stream)


class Shared:
    """Tensors created in one queue and used in all of them."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, Any, Any]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._made

    def get(self, key: Hashable, device: torch.device, stream: Any, make: Callable[[], T]) -> T:
        """Returns the tensor made by `make` for `key`, ready for use in `stream`, which is the current one."""
        found = self._made.get(key)
        if found is None:
            value = make()
            self._made[key] = (value, stream, None if stream is None else _mark(device, stream))
            return value
        value, home, mark = found
        if mark is not None and stream != home:
            stream.wait_event(mark)
        return value


def _mark(device: torch.device, stream: Any) -> Any:
    event = _module(device).Event()
    event.record(stream)
    return event
