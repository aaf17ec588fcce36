"""Temporarily replaces functions wherever they have been imported, and restores them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Replacements that can be undone. Undoing skips anything that someone else has replaced since."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def attribute(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replaces `owner.name` with `wrap(owner.name)`. A missing attribute is skipped."""
        original = owner.__dict__.get(name, _MISSING) if isinstance(owner, type) else getattr(owner, name, _MISSING)
        if original is _MISSING and isinstance(owner, type):
            inherited = getattr(owner, name, _MISSING)
            if inherited is _MISSING:
                return
            self._set(owner, name, wrap(inherited), _MISSING)
        elif original is not _MISSING:
            self._set(owner, name, wrap(original), original)

    def everywhere(self, replacements: list[tuple[Any, str, Callable[[Any], Any]]]) -> None:
        """Replaces each `owner.name` with the result of its wrapper, and the same object under any name in any
        module: `from x import f` keeps a copy."""
        known: dict[int, tuple[Any, Any]] = {}
        for owner, name, wrap in replacements:
            original = getattr(owner, name, _MISSING)
            if original is not _MISSING and id(original) not in known:
                known[id(original)] = (original, wrap(original))
                self._set(owner, name, known[id(original)][1], original)
        for module in list(sys.modules.values()):
            contents = getattr(module, "__dict__", None)
            if type(contents) is dict:
                for name, value in list(contents.items()):
                    if id(value) in known:
                        original, replacement = known[id(value)]
                        self._set(module, name, replacement, original)

    def undo(self) -> None:
        """Restores everything, last first."""
        while self._undo:
            owner, name, replacement, original = self._undo.pop()
            if owner.__dict__.get(name, _MISSING) is not replacement:
                continue
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def _set(self, owner: Any, name: str, replacement: Any, original: Any) -> None:
        setattr(owner, name, replacement)
        self._undo.append((owner, name, replacement, original))
