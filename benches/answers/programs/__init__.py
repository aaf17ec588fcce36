"""Training programs that the judge was never tried on: some are looked at, the others are only counted."""

from __future__ import annotations

import random

from programs import (
    agreement, aligned, capsules, controlled, densities, features, fields, frames, generative, geometric, hierarchies, languages, matchings,
    memories, mixtures, motions, pairs, parts, pictures, ranked, recognition, restored, rewarded, risks,
    sequences, sounds, tables, taught, vision, writing,
)  # fmt: skip
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
#: Those that were written when the judge had been mended on the halves above that are looked at.
LATER: dict[str, type[Program]] = {
    **aligned.PROGRAMS,
    **languages.PROGRAMS,
    **mixtures.PROGRAMS,
    **recognition.PROGRAMS,
    **sounds.PROGRAMS,
    **tables.PROGRAMS,
}
#: Those that came when all of the broad ones were open. They were counted, twice, before they were read.
LAST: dict[str, type[Program]] = {
    **features.PROGRAMS,
    **frames.PROGRAMS,
    **matchings.PROGRAMS,
    **motions.PROGRAMS,
    **pairs.PROGRAMS,
    **parts.PROGRAMS,
    **restored.PROGRAMS,
    **writing.PROGRAMS,
}
#: Those that were written when drawn programs had been judged for days.
NEWEST: dict[str, type[Program]] = {
    **controlled.PROGRAMS,
    **ranked.PROGRAMS,
    **taught.PROGRAMS,
}
#: Those that were written when all others had been read.
FURTHER: dict[str, type[Program]] = {
    **capsules.PROGRAMS,
    **hierarchies.PROGRAMS,
    **risks.PROGRAMS,
}
PROGRAMS: dict[str, type[Program]] = {**FIRST, **BROAD, **LATER, **LAST, **NEWEST, **FURTHER}
#: The programs whose wrong answers may be read; of the others, `score.py` tells counts. Half of the first group is sealed. What was
#: sealed of the others was counted before it was read: see benches/README.md. Programs that nobody has seen are drawn: see `drawn`.
SEEN = frozenset([*random.Random(35).sample(sorted(FIRST), len(FIRST) // 2), *BROAD, *LATER, *LAST, *NEWEST, *FURTHER])


def split(name: str) -> str:
    """`seen` or `sealed`."""
    return "seen" if name in SEEN else "sealed"
