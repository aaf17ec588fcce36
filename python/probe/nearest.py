"""Finds the known name that a misspelt one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


#: Most names listed in a message.
LISTED = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most like `name`, ignoring case; None if nothing is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the hint for an unknown name: the nearest known one, or else the known names."""
    names = list(known)
    found = nearest(name, names)
    if found:
        return f"did you mean {found!r}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"known: {', '.join(names[:LISTED])}{more}"
