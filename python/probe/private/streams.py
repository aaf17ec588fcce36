"""The current stream of a device, identified by the numbers that torch keeps: the public function creates an object
at every call, which takes the host longer than a launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Optional

import torch

from probe.private import safe

#: Identifies a stream: the numbers of the stream, the device and the kind of device.
Numbers = tuple[int, int, int]
Ask = Optional[Callable[[int], Numbers]]


def _function(kind: str, name: str) -> Any:
    """Returns torch's own function of this name for devices of this kind; None if there is none or it must not be
    used."""
    if safe():
        return None
    if kind == "cuda":
        return getattr(torch._C, f"_cuda_{name}", None)
    if kind == "npu":
        return getattr(getattr(sys.modules.get("torch_npu"), "_C", None), f"_npu_{name}", None)
    return None


def capturing(kind: str, module: Any) -> Callable[[], bool]:
    """Returns a function that tells whether operations on devices of this kind are being captured into a graph;
    `module` is `torch.cuda` or the like."""
    asked = _function(kind, "isCurrentStreamCapturing") or getattr(module, "is_current_stream_capturing", None)
    return asked or (lambda: False)


def cuda_queue() -> tuple[Callable[[int], int], Callable[[], bool]]:
    """Functions of torch that a launch of ours asks: the address of a CUDA device's current stream, and whether it is being recorded into a
    graph. Raises AttributeError where torch has them no more."""
    return torch._C._cuda_getCurrentRawStream, torch._C._cuda_isCurrentStreamCapturing


class Streams:
    """Stream objects as returned by the public function, each created once."""

    def __init__(self) -> None:
        self._asked: dict[str, Ask] = {}
        self._known: dict[Numbers, Any] = {}

    def current(self, device: torch.device, module: Any) -> Any:
        """Returns the stream that operations on `device` currently go to; `module` is `torch.cuda` or the like."""
        kind, index = device.type, device.index
        if kind not in self._asked:
            self._asked[kind] = _function(kind, "getCurrentStream")
        ask = self._asked[kind]
        if ask is None or index is None:
            return module.current_stream(device)
        numbers = ask(index)
        found = self._known.get(numbers)
        if found is None:
            found = module.current_stream(device)
            # Each is checked against its object once before it is trusted.
            if numbers == (found.stream_id, found.device_index, found.device_type):
                self._known[numbers] = found
            else:
                self._asked[kind] = None
        return found
