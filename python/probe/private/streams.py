"""The current queue of a device, known by the numbers that torch keeps of it: its public function makes an object at every call, which takes
the host longer than a launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Optional

import torch

from probe.private import safe

#: What tells streams from one another: the stream's number, the device's, and that of the device's kind.
Numbers = tuple[int, int, int]
Ask = Optional[Callable[[int], Numbers]]


def _function(kind: str, name: str) -> Any:
    """Torch's own function of this name for devices of this kind; None where there is none or it is not to be used."""
    if safe():
        return None
    if kind == "cuda":
        return getattr(torch._C, f"_cuda_{name}", None)
    if kind == "npu":
        return getattr(getattr(sys.modules.get("torch_npu"), "_C", None), f"_npu_{name}", None)
    return None


def capturing(kind: str, module: Any) -> Callable[[], bool]:
    """What says whether operations of devices of this kind are being recorded into a graph; `module` is `torch.cuda` or the like."""
    asked = _function(kind, "isCurrentStreamCapturing") or getattr(module, "is_current_stream_capturing", None)
    return asked or (lambda: False)


class Streams:
    """Objects of streams as the public function made them, each once."""

    def __init__(self) -> None:
        self._asked: dict[str, Ask] = {}
        self._known: dict[Numbers, Any] = {}

    def current(self, device: torch.device, module: Any) -> Any:
        """The stream that operations on `device` go to now; `module` is `torch.cuda` or the like."""
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
            # Each is held against its object once, before it is trusted.
            if numbers == (found.stream_id, found.device_index, found.device_type):
                self._known[numbers] = found
            else:
                self._asked[kind] = None
        return found
