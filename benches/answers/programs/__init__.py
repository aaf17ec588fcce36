"""Training programs that the judge was never tried on, in two halves: one is looked at, the other is only counted."""

from __future__ import annotations

import random

from programs import generative, geometric, rewarded, sequences, vision
from programs.program import Program

PROGRAMS: dict[str, type[Program]] = {
    **generative.PROGRAMS,
    **geometric.PROGRAMS,
    **rewarded.PROGRAMS,
    **sequences.PROGRAMS,
    **vision.PROGRAMS,
}
#: The half whose wrong answers may be read. Of the other half, `score.py` tells counts.
SEEN = frozenset(random.Random(35).sample(sorted(PROGRAMS), len(PROGRAMS) // 2))


def split(name: str) -> str:
    """`seen` or `sealed`."""
    return "seen" if name in SEEN else "sealed"
