"""Detects how a program ends inside a step: by an exception, by Ctrl-C, or as a child process whose end another
handles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from probe.ranks import is_child

if TYPE_CHECKING:
    from probe._core import Recorder


class Ending:
    """Tells the exception that ends a step from those that the program had before it."""

    def __init__(self) -> None:
        self._before: set[int] = set()

    def step_begins(self) -> None:
        """Ignores exceptions present now, which have nothing to do with the step."""
        self._before = {id(error) for error in _errors()}

    def cut(self, core: Recorder, error: BaseException | None = None) -> tuple[str | None, str] | None:
        """Returns the op in which the program ended, if known, and what ended it; None if nothing did.

        `error` is the exception that leaves the recorded block; without it, the one that ends the interpreter is
        looked up.
        """
        found = error if error is not None else next((e for e in _errors() if id(e) not in self._before), None)
        last = core.last_raised()
        if found is None:
            # Multiprocessing handles a child's exception before the child ends: only the place where it was raised
            # remains.
            return (last[0], last[2]) if last is not None and not last[3] and is_child() else None
        if isinstance(found, GeneratorExit) or (isinstance(found, SystemExit) and not found.code):
            return None
        inside = last is not None and any(id(each) == last[1] for each in _chain(found))
        return (last[0] if last is not None and inside else None, _text(found))


def _errors() -> list[BaseException]:
    """Exceptions being handled, or that have ended the program."""
    found = (sys.exc_info()[1], getattr(sys, "last_value", None))
    return [error for error in found if isinstance(error, BaseException)]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the exception and its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]


def _text(error: BaseException) -> str:
    """Returns type and first line, truncated."""
    try:
        lines = str(error).splitlines()
    except Exception:
        lines = []
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
