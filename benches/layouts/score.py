"""Asks `probe compare` about the pairs of make.py, and counts: score.py FOLDER HALF [PATTERN]. Of the sealed half it prints counts alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import drawn
from cases import FAULTS, Case, cases

PROGRAM = os.environ.get("PROBE_BIN", "probe")


def asked(pair: Path, case: Case, of_drawn: bool) -> tuple[str, str]:
    """The answer, and what was said."""
    done = subprocess.run([PROGRAM, "compare", "-b", pair / "one", "-c", pair / "many", "-o", "-", "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return "failed", done.stderr.strip()[:300]
    first = json.loads(done.stdout)["first_divergence"]
    if not case.fault:
        return ("false", words(first)) if first or done.returncode else ("silent", "")
    if not first:
        return "missed", ""
    place, expected = drawn.expected(case) if of_drawn else FAULTS[case.fault][1:]
    # A parameter is named by the slot of the optimizer, and an op by its module.
    named = " ".join(str(first.get(part) or "") for part in ("op", "slot", "module"))
    right = re.search(place, named) is not None
    said = re.search(expected, first["reason"]) is not None
    return ("named" if right and said else "place" if right else "words" if said else "wrong"), words(first)


def words(first: dict | None) -> str:
    return f"{first['op']} {first['slot']} {first['cause']}: {first['reason'][:220]}" if first else "no divergence, but differs"


def main(folder: Path, half: str, pattern: str = "*") -> None:
    is_drawn = half.startswith("drawn")
    wanted = [case for case in (drawn.cases if is_drawn else cases)(half) if fnmatch(case.name, pattern) and (folder / half / case.name / "made").exists()]
    counts: dict[str, Counter[str]] = {}
    with ThreadPoolExecutor(2) as pool:
        for case, (answer, said) in zip(wanted, pool.map(lambda case: asked(folder / half / case.name, case, is_drawn), wanted)):
            counts.setdefault(case.fault or "(sound)", Counter())[answer] += 1
            if "sealed" not in half and answer not in ("silent", "named"):
                print(f"{answer}: {case.name}: {said}", flush=True)
    order = ("silent", "named", "place", "words", "wrong", "missed", "false", "failed")
    print(f"{half:20}" + "".join(f"{word:>8}" for word in order))
    total: Counter[str] = Counter()
    for fault, of in counts.items():
        print(f"{fault:20}" + "".join(f"{of[word] or '':>8}" for word in order))
        total += of
    print(f"{'all':20}" + "".join(f"{total[word] or '':>8}" for word in order))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
