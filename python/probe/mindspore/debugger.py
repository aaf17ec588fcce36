"""`PrecisionDebugger` for scripts of MindSpore that were written for the older tool."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import mindspore
import numpy
from probe.dropin import debugger
from probe.dropin.recording import SharedRecording
from probe.mindspore.iterations import CellMarks
from probe.mindspore.session import Session, check
from probe.settings import SettingsError

#: NumPy takes 32 bits.
_LARGEST = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seeds Python, NumPy and MindSpore. `mode` also asks MindSpore for deterministic kernels, and never switches that off.

    Raises ValueError for a seed outside 0 to 4294967295, and for `rm_dropout`, which is not supported for MindSpore.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= _LARGEST:
        raise ValueError(f"seed_all: {seed!r} is not a seed; choose a whole number from 0 to {_LARGEST}")
    if rm_dropout:
        raise SettingsError("seed_all: rm_dropout is not supported for MindSpore; set the probability of every dropout to 0")
    random.seed(seed)
    numpy.random.seed(seed)
    mindspore.set_seed(seed)
    if mode:
        mindspore.set_deterministic(True)


class _Recording(SharedRecording):
    """Records MindSpore."""

    marks = CellMarks
    session = staticmethod(Session)

    def __init__(self, settings: Any, switch: Any = None) -> None:
        check(settings)
        super().__init__(settings, switch)

    def start(self, model: Any, rank: int | None = None, tokens: Any = None, scheduled: Any = None) -> None:
        """Begin or resume recording. Raises SettingsError for tokens and requests, which are of inference engines of PyTorch."""
        if tokens is not None or scheduled is not None:
            raise SettingsError("start: token_range and scheduled_tokens are not supported for MindSpore; leave them out")
        super().start(model, rank)

    def _check_names(self, model: Any) -> None:
        """Does nothing: the end of the recording names the listed names that matched nothing."""


class PrecisionDebugger(debugger.PrecisionDebugger):
    """The older tool's debugger for MindSpore. To switch, a script changes its import to `from probe.mindspore import
    PrecisionDebugger`."""

    _shared_recording: ClassVar[type[SharedRecording]] = _Recording

    @staticmethod
    def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
        """Calls `probe.mindspore.seed_all`. Raises SettingsError for `is_enhanced`, which is not supported for MindSpore."""
        if is_enhanced:
            raise SettingsError("seed_all: is_enhanced is not supported for MindSpore; leave it out")
        seed_all(seed, mode, rm_dropout)
