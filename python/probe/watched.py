"""A small file that someone else writes while the program runs, and that is read again when it has changed."""

from __future__ import annotations

import os

#: Largest size that is read.
_MOST = 1 << 20


class Watched:
    """Knows whether the file has changed since it was last looked at. A look costs microseconds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._state()

    def changed(self) -> str | None:
        """Returns the file's text if it has changed and can be read; None otherwise."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
        try:
            with open(self.path, encoding="utf-8-sig") as file:
                return file.read(_MOST)
        except (OSError, UnicodeDecodeError):
            return None

    def _state(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
