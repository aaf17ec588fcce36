"""Calls of cells and steps of optimizers, for everything in this package that waits for them.

`Cell.__call__` is replaced while anyone listens, and is MindSpore's own otherwise. Nothing is attached to the user's cells, so they
can be copied and saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.experimental.optim.optimizer import Optimizer as ExperimentalOptimizer
from probe import listening
from probe.messages import say_once
from probe.mindspore import graph

#: Runs a call: `(original, cell, args, kwargs) -> result`.
Around = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

OPTIMIZERS = (nn.Optimizer, ExperimentalOptimizer)


class Handle(listening.Handle):
    """Registered listeners."""

    def __init__(self, began: Callable[[Any], None] | None, stepped: Callable[[Any], None] | None, around: Around | None) -> None:
        self.began, self.stepped, self.around = began, stepped, around
        super().__init__(_waiting, _restore)


_waiting: list[Handle] = []
_original = nn.Cell.__call__
_passed_by = False


def listen(
    began: Callable[[Any], None] | None = None, stepped: Callable[[Any], None] | None = None, around: Around | None = None
) -> Handle:
    """Calls `began(cell)` before every call of a cell that is not an optimizer, `stepped(optimizer)` after every step, and
    `around` in place of every call of either. Graph mode is passed by. A listener must not raise."""
    handle = Handle(began, stepped, around)
    if nn.Cell.__call__ is _original:
        nn.Cell.__call__ = _entry
    return handle


def has_passed_by() -> bool:
    """Returns true if a call was not recorded because it was in graph mode."""
    return _passed_by


def _restore() -> None:
    # Something else may have replaced it since, which is then not ours to remove.
    if nn.Cell.__call__ is _entry:
        nn.Cell.__call__ = _original


def _entry(self: Any, *args: Any, **kwargs: Any) -> Any:
    global _passed_by
    waiting = list(_waiting)
    if not waiting:
        return _original(self, *args, **kwargs)
    if not graph.is_eager():
        _passed_by = True
        say_once(
            "graph mode is not recorded: run with mindspore.set_context(mode=mindspore.PYNATIVE_MODE), or let MindSpore dump "
            "(MINDSPORE_DUMP_CONFIG with common_dump_settings) and compare its folders of .npy files"
        )
        return _original(self, *args, **kwargs)
    is_step = isinstance(self, OPTIMIZERS)
    for handle in waiting:
        if handle.began is not None and not is_step:
            handle.began(self)
    # A listener may have begun a recording.
    around = next((handle.around for handle in reversed(_waiting) if handle.around is not None), None)
    result = _original(self, *args, **kwargs) if around is None else around(_original, self, args, kwargs)
    if is_step:
        for handle in list(_waiting):
            if handle.stepped is not None:
                handle.stepped(self)
    return result
