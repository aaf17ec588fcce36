"""Steps of optimizers, for everything in this package that waits for them.

Torch goes through its hooks in a loop that fails when one of them adds or removes a hook. A step may be what begins or ends
a recording, so there is one pair of hooks, and those who wait are in a list of our own.

A step may be given a closure that computes the gradients: Lightning always does so, `LBFGS` needs one. What the closure does, the
forward and the backward pass mostly, is not done by the optimizer.
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
#: Told also in which frame the step runs.
Entered = Callable[[Optimizer, FrameType], None]


class Handle:
    """Stands for listeners; `remove` ends their wait. Twice is harmless."""

    def __init__(self, before: Entered | None, aside: Listener | None, after: Listener | None) -> None:
        self.before, self.aside, self.after = before, aside, after

    def remove(self) -> None:
        """Takes the listeners out, also from inside one of them."""
        if self in _waiting:
            _waiting.remove(self)
        if not _waiting and not _is_stepping(sys._getframe()):
            _unhook()


_waiting: list[Handle] = []
_hooks: list[Any] = []
#: Frames of the steps that are under way, one within another; of a step that raised there is no end.
_stepping: list[FrameType] = []


def listen(before: Entered | None = None, aside: Listener | None = None, after: Listener | None = None) -> Handle:
    """Calls `before` and `after` around the step of every optimizer; of a step with a closure, `before` after each call of the
    closure, and `aside` in front of each. Listeners must not raise."""
    handle = Handle(before, aside, after)
    _waiting.append(handle)
    if not _hooks:
        _hooks[:] = [register_optimizer_step_pre_hook(_before), register_optimizer_step_post_hook(_after)]
    return handle


def _before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """None, or the arguments that the step is to have in place of its own. The first of them is the optimizer."""
    frame = sys._getframe(1)
    _stepping.append(frame)

    def begins() -> None:
        for handle in list(_waiting):
            if handle.before is not None:
                handle.before(optimizer, frame)

    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    # The program keeps its own where nobody asks what is done in the step.
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
    # Who came last, and may stand inside of what others end with the step, goes first.
    for handle in reversed(list(_waiting)):
        if handle.after is not None:
            handle.after(optimizer)
    frame = sys._getframe(1)
    if frame in _stepping:
        del _stepping[_stepping.index(frame) :]
    # The last of torch's hooks may be taken away while torch goes through them.
    if not _waiting and not _is_stepping(frame) and is_last(_hooks[1]):
        _unhook()


def _is_stepping(frame: FrameType | None) -> bool:
    """Whether `frame` runs inside a step."""
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
