"""Reads an object of the older tool's files key by key, so that no key is overlooked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from probe.nearest import nearest
from probe.settings import SettingsError


class Keys:
    """One object of a file. Every error names the file, the place in it, the key and the value."""

    def __init__(self, values: Mapping[str, Any], source: str, place: str = "") -> None:
        self._values = values
        self._source = source
        self._place = place

    def only(self, known: Iterable[str]) -> None:
        """Refuse each unknown key and suggest the nearest known one."""
        names = list(known)
        for key in self._values:
            if key not in names:
                found = nearest(key, names)
                advice = f"did you mean {found!r}?" if found else f"known: {', '.join(names)}"
                raise SettingsError(f"{self._source}: unknown key {self._place}{key!r}; {advice}")

    def get(self, key: str) -> Any:
        """Returns the value; None if it is absent, null, or an empty text, list or object, which say nothing
        either."""
        value = self._values.get(key)
        return None if value in ("", [], {}) else value

    def has(self, key: str) -> bool:
        """Returns true if the key is present at all."""
        return key in self._values

    def inside(self, key: str) -> Keys:
        """The object under a key, empty if there is none."""
        value = self._values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, "is not an object")
        return Keys(value, self._source, f"{self._place}{key}.")

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise self.error(key, "is not a list of strings")
        return value

    def flag(self, key: str) -> bool | None:
        """Returns a bool, or None if absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "is neither true nor false")
        return value

    def name(self, key: str) -> str:
        """Location of a key, for a message."""
        return f"{self._source}: {self._place}{key}"

    def error(self, key: str, what: str) -> SettingsError:
        """Returns a one-line error about the value of a key."""
        return SettingsError(f"{self.name(key)}: {self._values.get(key)!r} {what}")
