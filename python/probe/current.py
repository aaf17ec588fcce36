"""The session that records in this process, and the calls that scripts can make to it from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from probe.messages import say_once

# Type checkers read this as true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from probe.iterations import Iterations
    from probe.settings import Slice
    from probe.steps import Steps


class Recording(Protocol):
    """Recorder interface used by the entry points; `probe.recorder._session.Session` implements it."""

    step_number: int
    #: Counter of iterations, unless only the program counts them.
    iterations: Iterations | None

    def start(self, model: Any = None) -> None: ...
    def stop(self) -> None: ...
    def step(self) -> None: ...
    def count(self, step_on: str, counter: type[Iterations]) -> None: ...
    def recount(self, number: int) -> None: ...
    def set_step(self, number: int) -> None: ...
    def narrow(self, rows: Slice) -> None: ...
    def select(self, steps: Steps) -> None: ...
    def save(self, name: str, value: Any, gradient: bool = True) -> None: ...
    def close(self) -> None: ...


_session: Recording | None = None
#: Receives the program's own calls of `step`, if the session does not.
_counter: Callable[[], None] | None = None


def session() -> Recording | None:
    """Returns the session of this process; None if there is none."""
    return _session


def begin(recording: Recording) -> None:
    """Make a session the one that `save` records to."""
    global _session
    _session = recording


def end(recording: Recording) -> None:
    """Remove a session, unless another has taken its place."""
    global _session
    if _session is recording:
        _session = None


def count_by(counter: Callable[[], None] | None) -> None:
    """Make `step` call `counter`; None removes it."""
    global _counter
    _counter = counter


def step() -> None:
    """Mark the end of an iteration; what follows belongs to the next one.

    From the first call on, iterations of the active capture end here and nowhere else. Without a capture this does
    nothing, so the call may stay in the program.
    """
    if _counter is not None:
        _counter()
    elif _session is not None:
        _session.step()


def save(name: str, value: Any, gradient: bool = True) -> None:
    """Record a tensor, a number, a text, or a list, tuple or dict of these under a name of the user's choice.

    With `gradient`, the gradient of each tensor is recorded as well when backward reaches it. Without a capture this
    does nothing, so the call may stay in the script; the first such call says so.
    """
    if _session is None:
        say_once(f"save({name!r}): no capture is active in this process, so nothing is saved")
        return
    _session.save(name, value, gradient=gradient)
