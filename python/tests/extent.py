"""How much of the tests runs: `./test.sh` takes of each matrix the settings that differ in code, `./test.sh --all` the whole of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Setting = TypeVar("Setting")

#: True where every setting of every matrix runs.
EVERYTHING = bool(os.environ.get("PROBE_TEST_ALL"))


def chosen(whole: Sequence[Setting], few: Sequence[Setting]) -> list[Setting]:
    """The settings that run: all, or the few of them that differ in code."""
    return list(whole if EVERYTHING else few)
