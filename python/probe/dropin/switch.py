"""`dump_enable`: switches the recording on and off while the script runs, whenever its file is written again."""

from __future__ import annotations

import json

from probe.messages import say_once, warn
from probe.watched import Watched


class Switch:
    """The key `dump_enable` of a configuration file, which had it when the script began."""

    def __init__(self, path: str, on: bool) -> None:
        self._file = Watched(path)
        self.on = on
        if not on:
            say_once(f"{path}: dump_enable is false, so nothing is recorded until the file says true")

    def look(self) -> bool:
        """Returns true if the recording is on. A file that cannot be read switches it off, and a line says so."""
        text = self._file.changed()
        if text is not None:
            try:
                value = json.loads(text)["dump_enable"]
                if not isinstance(value, bool):
                    raise ValueError(f"{value!r} is neither true nor false")
                self.on = value
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self.on = False
                warn(f"{self._file.path}: dump_enable cannot be read, so recording is off until the file is right: {error}")
        return self.on
