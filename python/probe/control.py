"""`--control FILE`: records the next iterations of a running program whenever someone writes their number into the file."""

from __future__ import annotations

from probe.messages import say, warn
from probe.steps import Steps
from probe.watched import Watched

#: Most iterations that one request may ask for.
_MOST = 10**6


class Control:
    """Iterations requested so far: none until the file changes."""

    def __init__(self, path: str) -> None:
        self._file = Watched(path)
        self._ranges: list[tuple[int, int]] = []

    @property
    def steps(self) -> Steps:
        """The requested iterations."""
        return Steps(self._ranges)

    def look(self, iteration: int) -> bool:
        """Looks at the file before `iteration` begins; returns true if it requests iterations from there on."""
        text = self._file.changed()
        if text is None:
            return False
        words = text.split()
        if len(words) != 1 or not words[0].isdecimal() or not 0 < int(words[0][:12]) <= _MOST:
            warn(f"{self._file.path}: {text.strip()[:40]!r} is not the number of iterations to record; write one, such as 3")
            return False
        last = iteration + int(words[0]) - 1
        self._ranges.append((iteration, last))
        say(f"recording steps {Steps([(iteration, last)])}, as {self._file.path} asks")
        return True
