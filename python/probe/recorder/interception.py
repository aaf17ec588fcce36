"""The modes of one recording on the threads of the program."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from probe.private.modes import pushed, remove, set_aside, settle_flags
from probe.recorder.collectives import CollectiveMode
from probe.recorder.integrity import Integrity, IntegrityMode
from probe.recorder.modes import ApiMode, InjectedOpMode, OpMode

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.recorder.gradients import Gradients
    from probe.recorder.inject import Injection
    from probe.recorder.modules import Modules

_Mode = ApiMode | OpMode | InjectedOpMode | CollectiveMode | IntegrityMode


class Interception:
    """Pushes the modes of a level where ops are to be seen, and removes them."""

    def __init__(self, core: Recorder, level: str, gradients: Gradients | None, integrity: Integrity | None, injection: Injection | None) -> None:
        """`gradients` watches the backward pass, `integrity` the memory, and `injection` replaces values, each if it is wanted."""
        self._core = core
        self._level = level
        self._gradients = gradients
        self._integrity = integrity
        self._injection = injection
        self._local = threading.local()
        #: Active modes on any thread.
        self._modes: weakref.WeakSet[_Mode] = weakref.WeakSet()
        #: Number of times that everything was switched off.
        self._period = 0

    def push(self) -> bool:
        """Intercepts ops on this thread. Returns false if that is already done."""
        present: list[_Mode] = getattr(self._local, "modes", None) or []
        if any(mode.on for mode in present):
            return False
        # Recomputation in a device's backward pass runs on an autograd thread, which has inherited the modes.
        if any(mode.on for mode in self._modes.intersection(pushed())):
            return False
        # Left by a stop on another thread.
        self.pop()
        # Inside the others: it sees an op where that runs, and they do not see what it does.
        modes: list[_Mode] = [] if self._integrity is None else [IntegrityMode(self._integrity)]
        if self._level in ("api", "mix"):
            modes.append(ApiMode(self._core, self._gradients, self._integrity, self._injection))
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                modes.append(CollectiveMode(self._core))
        elif self._level == "op":
            modes.append(OpMode(self._core) if self._injection is None else InjectedOpMode(self._core, self._injection))
        for mode in modes:
            mode.__enter__()
            self._modes.add(mode)
        self._local.modes = modes
        return True

    def pop(self) -> None:
        """Removes the modes of this thread."""
        modes, self._local.modes = getattr(self._local, "modes", None), None
        # Torch restores a mode when its handler ends, so one removed inside a handler is removed again later.
        lingering: list[_Mode] = [*getattr(self._local, "lingering", ()), *(modes or ())]
        for mode in reversed(lingering):
            remove(mode)
        self._local.lingering = lingering[-4:]

    def switch_off(self) -> None:
        """Ends interception on every thread; modes on other threads pass ops through from now on."""
        self._period += 1
        self.pop()
        for mode in list(self._modes):
            mode.on = False
        self._modes.clear()
        settle_flags()

    def silence(self, modules: Modules) -> Callable[[], None] | None:
        """Stops recording on this thread until the returned function is called. None if it is not being recorded."""
        modes: list[_Mode] = [mode for mode in getattr(self._local, "modes", None) or [] if mode.on]
        watch = modules.silence()
        if watch is None:
            return None
        if self._integrity is not None:
            self._integrity.forget()
        set_back = [back for mode in reversed(modes) if (back := set_aside(mode)) is not None]
        if not set_back and self._level != "module":
            watch()
            return None
        period = self._period

        def resume() -> None:
            watch()
            # A step that ended meanwhile has restarted with its own modes, or has ended the recording.
            if self._period == period:
                for back in reversed(set_back):
                    back()

        return resume
