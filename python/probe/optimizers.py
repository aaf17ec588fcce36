"""Optimizer steps, for everything in this package that waits for them.

Torch iterates over its hooks in a loop that fails if one of them adds or removes a hook. A step may be what begins or
ends a recording, so there is one pair of hooks, and the listeners are in a list of our own.

A step may be given a closure that computes the gradients: Lightning always does so, `LBFGS` needs one. The closure's
work, mostly the forward and the backward pass, is not the optimizer's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from probe.private.hooks import is_last

Listener = Callable[[Optimizer], None]
#: Also receives the frame in which the step runs.
Entered = Callable[[Optimizer, FrameType], None]


class Handle:
    """Registered listeners; `remove` unregisters them. Calling it twice is harmless."""

    def __init__(self, before: Entered | None, aside: Listener | None, after: Listener | None) -> None:
        self.before, self.aside, self.after = before, aside, after

    def remove(self) -> None:
        """Unregisters the listeners, even from inside one of them."""
        if self in _waiting:
            _waiting.remove(self)
        if not _waiting and not _is_stepping(sys._getframe()):
            _unhook()


_waiting: list[Handle] = []
_hooks: list[Any] = []
#: Frames of the steps under way, innermost last; the end of a step that raised is not seen.
_stepping: list[FrameType] = []


def listen(before: Entered | None = None, aside: Listener | None = None, after: Listener | None = None) -> Handle:
    """Calls `before` and `after` around every optimizer step; for a step with a closure, `before` after each call of
    the closure, and `aside` before each. Listeners must not raise."""
    handle = Handle(before, aside, after)
    _waiting.append(handle)
    if not _hooks:
        _hooks[:] = [register_optimizer_step_pre_hook(_before), register_optimizer_step_post_hook(_after)]
    return handle


def _before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns None, or replacement arguments for the step. The first of them is the optimizer."""
    frame = sys._getframe(1)
    _stepping.append(frame)

    def begins() -> None:
        for handle in list(_waiting):
            if handle.before is not None:
                handle.before(optimizer, frame)

    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    # The program's closure is kept if no listener asks for `before`.
    if not callable(closure) or all(handle.before is None for handle in _waiting):
        begins()
        return None

    def compute() -> Any:
        for handle in list(_waiting):
            if handle.aside is not None:
                handle.aside(optimizer)
        try:
            return closure()
        finally:
            begins()

    return (args, {**kwargs, "closure": compute}) if "closure" in kwargs else ((args[0], compute, *args[2:]), kwargs)


def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    # The last to register may be nested inside something that others end with the step, so it goes first.
    for handle in reversed(list(_waiting)):
        if handle.after is not None:
            handle.after(optimizer)
    frame = sys._getframe(1)
    if frame in _stepping:
        del _stepping[_stepping.index(frame) :]
    # The last of torch's hooks may be removed while torch iterates over them.
    if not _waiting and not _is_stepping(frame) and is_last(_hooks[1]):
        _unhook()


def _is_stepping(frame: FrameType | None) -> bool:
    """Returns true if `frame` runs inside a step."""
    while frame is not None and _stepping:
        if frame in _stepping:
            return True
        frame = frame.f_back
    _stepping.clear()
    return False


def _unhook() -> None:
    for hook in _hooks:
        hook.remove()
    _hooks.clear()
