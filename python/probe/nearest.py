"""The known name that a misspelt one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, regardless of case; None if nothing is like it."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to add to a message on an unknown name: the nearest one, or else all that there are."""
    names = list(known)
    found = nearest(name, names)
    return f"did you mean {found!r}?" if found else f"known: {', '.join(names)}"
