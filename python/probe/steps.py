"""Sets of step or rank numbers, as users write them: `10,20`, `10-12`, `[10, "12-14"]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: The largest accepted number. A larger one is a mistake: no run has as many steps.
LARGEST = 10**12

_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?", re.ASCII)


class Steps:
    """A set of non-negative numbers; `Steps()` holds all of them.

    Immutable and hashable. Overlapping and repeated numbers are merged, so two sets are equal if they hold the same
    numbers.
    """

    __slots__ = ("_ranges",)
    _ranges: tuple[tuple[int, int], ...] | None

    def __init__(self, ranges: Iterable[tuple[int, int]] | None = None) -> None:
        """`ranges` are pairs of first and last number, both included; None means every number."""
        object.__setattr__(self, "_ranges", None if ranges is None else _merged(ranges))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Steps cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return Steps, (self._ranges,)

    @classmethod
    def parse(cls, value: object) -> Steps:
        """Read a number, a text such as `"10,20"`, `"10|20"`, `"10-12"` or `"all"`, or a list of both; None means all.

        Raises ValueError with a text that says what is wrong, without naming the key.
        """
        if isinstance(value, Steps):
            return value
        if value is None or (isinstance(value, str) and value.strip().lower() == "all"):
            return cls()
        parts = value if isinstance(value, (list, tuple, range, set, frozenset)) else [value]
        ranges = [pair for part in parts for pair in _pairs(part)]
        if not ranges:
            raise ValueError('holds no number; leave the key out, or write "all", to select every one')
        return cls(ranges)

    @property
    def all(self) -> bool:
        """True if every number is in the set."""
        return self._ranges is None

    @property
    def first(self) -> int:
        """The smallest number."""
        return self._ranges[0][0] if self._ranges else 0

    @property
    def last(self) -> int | None:
        """The largest number; None if there is no end."""
        return self._ranges[-1][1] if self._ranges else None

    def next_from(self, number: int) -> int | None:
        """Returns the smallest number of the set that is not below `number`; None if there is none."""
        if self._ranges is None:
            return number
        return next((max(first, number) for first, last in self._ranges if number <= last), None)

    def beyond(self, number: int) -> Steps | None:
        """Returns the numbers of the set from `number` on; None if there are none, or no end to them."""
        if self._ranges is None:
            return None
        ranges = [(max(first, number), last) for first, last in self._ranges if last >= number]
        return Steps(ranges) if ranges else None

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        if self._ranges is None:
            return number >= 0
        return any(first <= number <= last for first, last in self._ranges)

    def __iter__(self) -> Iterator[int]:
        """Yields the numbers in order. Raises ValueError for the set of all numbers."""
        if self._ranges is None:
            raise ValueError("the set of all numbers has no end")
        return (number for first, last in self._ranges for number in range(first, last + 1))

    def __eq__(self, other: object) -> bool:
        return self._ranges == other._ranges if isinstance(other, Steps) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __str__(self) -> str:
        if self._ranges is None:
            return "all"
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self._ranges)

    def __repr__(self) -> str:
        return f"Steps({str(self)!r})"


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _pairs(part: object) -> list[tuple[int, int]]:
    """Returns the ranges that one number or one text stands for."""
    # True is an int in Python; from a user it is a mistake.
    if isinstance(part, int) and not isinstance(part, bool):
        return [_checked(part, part, str(part))]
    if not isinstance(part, str):
        raise ValueError(f"{part!r} is not a number or range")
    # The older tool's oldest form separates with bars.
    words = [word.strip() for word in re.split(r"[,|]", part)]
    return [_range(word, part) for word in words]


def _range(word: str, text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(word)
    if found is None:
        shown = repr(text) if word == text else f"{word!r} in {text!r}"
        raise ValueError(f'{shown} is not a number or range; write 10, "10-12", "10,20" or a list of them')
    return _checked(int(found[1]), int(found[2] or found[1]), word)


def _checked(first: int, last: int, word: str) -> tuple[int, int]:
    if first < 0:
        raise ValueError(f"{word} is below 0; counting starts at 0")
    if last < first:
        raise ValueError(f"{word!r} ends before it begins")
    if last > LARGEST:
        raise ValueError(f"{word!r} is beyond {LARGEST}")
    return first, last
