"""The known name that a misspelt one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


#: Most names that a message lists.
LISTED = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, regardless of case; None if nothing is like it."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to add to a message on an unknown name: the nearest one, or else what there is."""
    names = list(known)
    found = nearest(name, names)
    if found:
        return f"did you mean {found!r}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"known: {', '.join(names[:LISTED])}{more}"
