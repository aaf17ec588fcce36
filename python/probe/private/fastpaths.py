"""Fast paths of torch's modules that a mode would switch off.

In evaluation the modules of `ASKING` call fused kernels, unless `torch.overrides.has_torch_function` says that somebody
wants to see their functions. The kernels round differently. While such a module runs, torch is answered as if our modes
were not there; the fused call then reaches them like any other function. Code of torch that computes and asks in the
same way was looked for in 2.1, 2.7 and 2.15: there is none besides these.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode

from probe.private.modes import set_aside

#: Modules whose `forward` asks before it does anything else, and only in evaluation.
ASKING = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer)


class FastPaths:
    """Answers torch's question for the modules that are under way."""

    def __init__(self, ours: type[TorchFunctionMode]) -> None:
        """`ours` is the class of the modes that are to be passed over."""
        self._ours = ours
        self._lock = threading.Lock()
        self._under_way = 0
        self._torchs = overrides.has_torch_function

    def enter(self, module: torch.nn.Module) -> bool:
        """Answers from here on if this module asks, and returns true then; `leave` is due for it."""
        if module.training or not isinstance(module, ASKING):
            return False
        with self._lock:
            if not self._under_way:
                self._torchs, overrides.has_torch_function = overrides.has_torch_function, self._answer
            self._under_way += 1
        return True

    def leave(self) -> None:
        """Ends what `enter` began; torch's own function is back when the last module ends."""
        with self._lock:
            if self._under_way:
                self._under_way -= 1
                self._restore()

    def close(self) -> None:
        """Puts torch's own function back, whatever is under way: it has asked already, or is not watched any more."""
        with self._lock:
            if self._under_way:
                self._under_way = 0
                self._restore()

    def _restore(self) -> None:
        if not self._under_way:
            overrides.has_torch_function = self._torchs

    def _answer(self, arguments: Iterable[Any]) -> bool:
        ours = [mode for mode in overrides._get_current_function_mode_stack() if isinstance(mode, self._ours)]
        set_back = [back for mode in reversed(ours) if (back := set_aside(mode)) is not None]
        try:
            return self._torchs(arguments)
        finally:
            for back in reversed(set_back):
                back()
