"""Scores `probe replay --op NAME --against BASELINE`: `python guilty.py FOLDER...`, of folders with a `cases.toml`: testdata/faults, and what
`benches/answers/make.py --data` made.

Of each fault the call at fault is replayed, and the candidate has to be guilty. Of each sound pair some calls are, drawn at random, and nobody may be
blamed. Prints counts by noise. Of a sealed case nothing else is told.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "answers"))

from probe.replay import one  # noqa: E402
from probe.replay.recorded import NotReplayed, Part, Recording  # noqa: E402
from score import visible  # noqa: E402

#: Causes that lie in what a kernel is given: both kernels are right.
GIVEN = {"argument", "input"}


def parts(path: Path) -> dict[tuple[int, int], Part]:
    return {(part.step, part.rank): part for part in Recording(str(path)).parts()}


def guilty(mine: Part, name: str, other: Part) -> str | None:
    """Whose kernel is called wrong; why it cannot be told, in brackets."""
    try:
        return one.replay(mine, name, other, "cpu", 0).guilty
    except NotReplayed as reason:
        return f"({reason})"


def asked(case: dict[str, Any], folder: Path, sound: int) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields calls of a case with who is guilty, and whom replay blames."""
    mine, theirs = parts(folder / case["candidate"]), parts(folder / case["baseline"])
    if case["verdict"] == "diverged" and not GIVEN & set(case.get("causes", ())):
        answers = case.get("answers") or [[case["step"], op] for op in case["ops"]]
        named = [(mine[step, 0], name, theirs[step, 0]) for step, name in answers if name in mine[step, 0]]
        found = {name: guilty(part, name, other) for part, name, other in named}
        # A module around the call is an answer as well; where one of them shows the fault, it is found.
        if found:
            yield next(((name, "candidate", who) for name, who in found.items() if who == "candidate"), (next(iter(found)), "candidate", next(iter(found.values()))))
        return
    for place, part in mine.items():
        names = [name for name in part.names if name in theirs[place]]
        random.Random(case["name"]).shuffle(names)
        blamed = ((name, None, guilty(part, name, theirs[place])) for name in names)
        yield from itertools.islice((each for each in blamed if not (each[2] or "").startswith("(")), sound)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path, nargs="+")
    arguments.add_argument("--sound", type=int, default=10, help="calls of each sound pair [default: 10]")
    arguments.add_argument("--least", type=int, help="draw cases until there are so many faults of each folder, and sound calls of each noise [default: all]")
    arguments.add_argument("--split", help="only cases of this split, such as seen")
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    counts: Counter[tuple[str, str]] = Counter()
    # Who stops it sees what was counted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for folder in chosen.folder:
            score(folder, chosen, counts)
    except KeyboardInterrupt:
        print("stopped; so far:", file=sys.stderr)
    print("| noise | faults: the candidate is guilty | sound calls: nobody is |\n|---|---|---|")
    for noise in sorted({noise for noise, _ in counts}):
        print(f"| {noise} | " + " | ".join(f"{counts[noise, f'right {kind}']} of {counts[noise, kind]}" for kind in ("faults", "sound calls")) + " |")
    sys.exit(any(counts[noise, kind] != counts[noise, kind.removeprefix("right ")] for noise, kind in counts if kind.startswith("right")))


def score(folder: Path, chosen: argparse.Namespace, counts: Counter[tuple[str, str]]) -> None:
    """Counts the cases of a folder."""
    faults, cases = 0, tomllib.loads((folder / "cases.toml").read_text())["case"]
    random.Random(39).shuffle(cases)
    for case in cases:
        if case["task"] != "tensor" or (chosen.split and case.get("split") != chosen.split) or not visible(case, "own"):
            continue
        noise = case["noise"] if isinstance(case["noise"], str) else f"{folder.name}, {'other rounding' if case['noise'] else 'equal'}"
        if chosen.least and chosen.least <= (counts[noise, "sound calls"] if case["verdict"] == "agree" else faults):
            continue
        faults += case["verdict"] != "agree"
        for name, expected, found in asked(case, folder, chosen.sound):
            kind = "faults" if expected else "sound calls"
            counts[noise, kind] += 1
            counts[noise, f"right {kind}"] += found == expected
            if found != expected and case.get("split") != "sealed":
                print(f"{case['name']} {name}: expected {expected}, replay says {found}", file=sys.stderr)


if __name__ == "__main__":
    main()
