"""Module calls, seen before they begin.

Hooks would come too late: one registered inside a call misses that very call, and a call may be what begins a
recording. So `Module.__call__` is replaced while anyone listens, and is torch's own otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe import listening
from probe.messages import say_once
from probe.private.compiling import compiling

Listener = Callable[[Any], None]


class Handle(listening.Handle):
    """A registered listener."""

    def __init__(self, began: Listener) -> None:
        self.began = began
        super().__init__(_waiting, _restore)


_waiting: list[Handle] = []
#: Restores torch's own `Module.__call__`.
_undo: list[Callable[[], None]] = []


def listen(began: Listener) -> Handle:
    """Calls `began(module)` before every module call that is not being traced by a compiler. If it raises, it is
    unregistered."""
    handle = Handle(began)
    if not _undo:
        _undo.append(_replace())
    return handle


def _restore() -> None:
    while _undo:
        _undo.pop()()


def _replace() -> Callable[[], None]:
    import torch

    original = torch.nn.Module.__call__
    is_compiling = compiling()
    listening = True

    def entry(self: Any, *args: Any, **kwargs: Any) -> Any:
        # While a graph is traced this is True for the tracer only, so the trace shows torch's own call.
        if is_compiling():
            return original(self, *args, **kwargs)
        if listening:
            for handle in list(_waiting):
                try:
                    handle.began(self)
                except Exception as error:
                    handle.remove()
                    say_once(f"calls of modules are no longer seen: {type(error).__name__}: {error}")
        return original(self, *args, **kwargs)

    torch.nn.Module.__call__ = entry  # type: ignore[method-assign, assignment]

    def undo() -> None:
        nonlocal listening
        listening = False
        # Something else may have replaced it since, which is then not ours to remove.
        if torch.nn.Module.__call__ is entry:
            torch.nn.Module.__call__ = original  # type: ignore[method-assign]

    return undo
