"""The session that records in this process, and what a script can give to it from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from probe.messages import say_once

# What type checkers take for true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from probe.iterations import Iterations


class Recording(Protocol):
    """What the ways in need of a recorder; `probe.recorder._session.Session` is it."""

    step_number: int
    #: How iterations are counted, where the program does not say it alone.
    iterations: Iterations | None

    def start(self, model: Any = None) -> None: ...
    def stop(self) -> None: ...
    def step(self) -> None: ...
    def recount(self, number: int) -> None: ...
    def set_step(self, number: int) -> None: ...
    def save(self, name: str, value: Any, gradient: bool = True) -> None: ...
    def close(self) -> None: ...


_session: Recording | None = None
#: Where the program's own word on the end of an iteration goes, if that is not the session.
_counter: Callable[[], None] | None = None


def session() -> Recording | None:
    """The session of this process; None if there is none."""
    return _session


def begin(recording: Recording) -> None:
    """Make a session the one that `save` gives to."""
    global _session
    _session = recording


def end(recording: Recording) -> None:
    """Take a session away, unless another has taken its place."""
    global _session
    if _session is recording:
        _session = None


def count_by(counter: Callable[[], None] | None) -> None:
    """Make `counter` what `step` calls; None to take it away."""
    global _counter
    _counter = counter


def step() -> None:
    """Say that an iteration of the program has ended; what follows belongs to the next one.

    From the first call on, iterations of the capture that is active end here and nowhere else. Without a capture this does
    nothing, so that the call may stay in the program.
    """
    if _counter is not None:
        _counter()
    elif _session is not None:
        _session.step()


def save(name: str, value: Any, gradient: bool = True) -> None:
    """Record a tensor, a number, a text, or a list, tuple or dict of these under a name of the user's.

    With `gradient`, the gradient of each tensor is recorded as well when backward reaches it. Without a capture this does
    nothing, so that the call may stay in the script; the first such call says so.
    """
    if _session is None:
        say_once(f"save({name!r}): no capture is active in this process, so nothing is saved")
        return
    _session.save(name, value, gradient=gradient)
