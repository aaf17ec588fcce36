"""Training programs that the judge was never tried on, in two halves: one is looked at, the other is only counted."""

from __future__ import annotations

import random

from programs import agreement, densities, fields, generative, geometric, memories, pictures, rewarded, sequences, vision
from programs.program import Program

#: Those that were there first: three mistakes and one other way of writing each.
FIRST: dict[str, type[Program]] = {
    **generative.PROGRAMS,
    **geometric.PROGRAMS,
    **rewarded.PROGRAMS,
    **sequences.PROGRAMS,
    **vision.PROGRAMS,
}
#: Those that came later, with many of both.
BROAD: dict[str, type[Program]] = {
    **agreement.PROGRAMS,
    **densities.PROGRAMS,
    **fields.PROGRAMS,
    **memories.PROGRAMS,
    **pictures.PROGRAMS,
}
PROGRAMS: dict[str, type[Program]] = {**FIRST, **BROAD}
#: The half whose wrong answers may be read. Of the other half, `score.py` tells counts. Each group is halved by itself, so that
#: what is sealed stays sealed when programs are added.
SEEN = frozenset(name for group in (FIRST, BROAD) for name in random.Random(35).sample(sorted(group), len(group) // 2))


def split(name: str) -> str:
    """`seen` or `sealed`."""
    return "seen" if name in SEEN else "sealed"
