"""Listeners for calls of the program that are replaced while anyone listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Handle:
    """Registered listeners; `remove` unregisters them. Calling it twice is harmless."""

    def __init__(self, waiting: list[Any], restore: Callable[[], None]) -> None:
        """Registers them in `waiting`; `restore` puts the program's own calls back once nobody listens."""
        self._waiting, self._restore = waiting, restore
        waiting.append(self)

    def remove(self) -> bool:
        """Unregisters the listeners, even from inside one. Returns true if they were registered; of several threads
        calling at once, one gets true."""
        try:
            self._waiting.remove(self)
        except ValueError:
            return False
        if not self._waiting:
            self._restore()
        return True
