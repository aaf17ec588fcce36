"""The session that records in this process, and what a script can give to it from anywhere."""

from __future__ import annotations

from typing import Any, Protocol

from probe.messages import say_once


class Recording(Protocol):
    """What the ways in need of a recorder; `probe.recorder._session.Session` is it."""

    step_number: int

    def start(self, model: Any = None) -> None: ...
    def stop(self) -> None: ...
    def step(self) -> None: ...
    def set_step(self, number: int) -> None: ...
    def save(self, name: str, value: Any, gradient: bool = True) -> None: ...
    def close(self) -> None: ...


_session: Recording | None = None


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


def save(name: str, value: Any, gradient: bool = True) -> None:
    """Record a tensor, a number, a text, or a list, tuple or dict of these under a name of the user's.

    With `gradient`, the gradient of each tensor is recorded as well when backward reaches it. Without a capture this does
    nothing, so that the call may stay in the script; the first such call says so.
    """
    if _session is None:
        say_once(f"save({name!r}): no capture is active in this process, so nothing is saved")
        return
    _session.save(name, value, gradient=gradient)
