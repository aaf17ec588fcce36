"""How a program ends inside a step: by an exception, by Ctrl-C, or because its process is a child whose end is another's."""

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
        """What is an exception now has nothing to do with the step."""
        self._before = {id(error) for error in _errors()}

    def cut(self, core: Recorder, error: BaseException | None = None) -> tuple[str | None, str] | None:
        """The op in which the program ended, if one is known, and what ended it; None when nothing did.

        `error` is the exception that leaves the recorded block; otherwise the one that ends the interpreter is found.
        """
        found = error if error is not None else next((e for e in _errors() if id(e) not in self._before), None)
        last = core.last_raised()
        if found is None:
            # Multiprocessing has seen to the exception of a child before the child ends: what is left is where it was raised.
            return (last[0], last[2]) if last is not None and not last[3] and is_child() else None
        if isinstance(found, GeneratorExit) or (isinstance(found, SystemExit) and not found.code):
            return None
        inside = last is not None and any(id(each) == last[1] for each in _chain(found))
        return (last[0] if last is not None and inside else None, _text(found))


def _errors() -> list[BaseException]:
    """Exceptions that are under way, or that have ended the program."""
    found = (sys.exc_info()[1], getattr(sys, "last_value", None))
    return [error for error in found if isinstance(error, BaseException)]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it came of."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]


def _text(error: BaseException) -> str:
    """Type and first line, cut."""
    try:
        lines = str(error).splitlines()
    except Exception:
        lines = []
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
