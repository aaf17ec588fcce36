"""Makes pairs of checkpoints by converters of others, plants mistakes in what they made, asks `probe weights`, and counts.

conversions.py SOURCES FOLDER HALF [PATTERN]: SOURCES holds the unpacked wheels (sources.py says which), FOLDER what is made, once. Of the half
`sealed`, which differs by seed, counts alone are printed.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import subprocess
import sys
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import mistakes
import of_diffusers
import of_torch
import of_trainers
import of_transformers
import pairs
import torch
from sources import Sources

PROGRAM = os.environ.get("PROBE_BIN", "probe")
LOADED = (of_transformers, of_trainers, of_torch, of_diffusers)

EACH = 4
"""Mistakes in each conversion."""


def make(sources: Sources, name: str, folder: Path, draw: random.Random, used: Counter[str]) -> None:
    """Makes a pair, and plants mistakes of the kinds that were used least so far."""
    size = pairs.Size.drawn(draw)
    made = replace(pairs.CONVERSIONS[name](sources, size, folder, draw.randrange(1 << 30)), name=name)
    planted = []
    order = sorted(mistakes.KINDS, key=lambda kind: (used[kind], draw.random()))
    for kind in order:
        mistake = mistakes.KINDS[kind](made, draw) if len(planted) < EACH else None
        if mistake is None:
            continue
        used[kind] += 1
        path = pairs.write(made, mistake.parts, folder / f"with-{kind}")
        older = mistake.snapshot and pairs.write(made, mistake.snapshot, folder / f"older-{kind}")
        planted.append((kind, path, older, mistake.wrong, mistake.words, mistake.lost))
    made = replace(made, parts={})
    (folder / "made.pickle").write_bytes(pickle.dumps((made, planted)))


def probe(*given: object) -> tuple[int, dict]:
    done = subprocess.run([PROGRAM, "weights", *map(str, given), "--format", "json"], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"findings": [{"kind": "", "tensors": [], "text": done.stderr[:300]}], "tensors": []}


def label(place: mistakes.Place, made: pairs.Made) -> str:
    # Below `model` lies what is compared; the rest of the file is of training.
    return "/".join(place) if made.form == "ranks" else place[1].removeprefix(made.root)


def judged(made: pairs.Made, planted: tuple, sound: dict) -> tuple[str, list[str]]:
    """`named`: every wrong tensor and no other is in a finding that says the right words."""
    kind, path, older, wrong, words, lost = planted
    code, said = probe(made.baseline, path, *(("--snapshot", older) if older else ()))
    texts = [finding["text"] for finding in said["findings"]]
    if code == 0:
        return "missed", [f"{label(place, made)}" for place in wrong]
    names = {label(place, made) for place in wrong}
    if lost:
        names = {source["name"] for tensor in sound["tensors"] if tensor["name"] in names for source in tensor["sources"]}
    found = {name for finding in said["findings"] for name in finding["tensors"]}
    right = names <= found if lost else names == found
    telling = all(re.search(words, text) for text in texts)
    if code != 1 or len(texts) > len(names):
        return "wrong", [*texts, *(f"due: {name}" for name in sorted(names)[:3])]
    answer = {(True, True): "named", (True, False): "place", (False, True): "words"}.get((right, telling), "wrong")
    return answer, [*texts, *(f"due: {name}" for name in sorted(names)[:3])]


def scored(folder: Path) -> tuple[pairs.Made, bool, list[tuple[str, str, list[str]]], list[str]]:
    made, planted = pickle.loads((folder / "made.pickle").read_bytes())
    code, sound = probe(made.baseline, made.candidate)
    answers = [(mistake[0], *judged(made, mistake, sound)) for mistake in planted]
    return made, code == 0, answers, [finding["text"] for finding in sound["findings"]]


def main(sources: Path, folder: Path, half: str, pattern: str = "*") -> None:
    torch.set_num_threads(1)
    used: Counter[str] = Counter()
    wanted = [name for name in pairs.CONVERSIONS if fnmatch(name, pattern)]
    for name in wanted:
        place = folder / half / name
        if not (place / "made.pickle").exists():
            make(Sources(sources), name, place, random.Random(zlib.crc32(f"{half} {name}".encode())), used)
    hidden = half.startswith("sealed")
    by_kind: dict[str, Counter[str]] = {}
    lines, equal, total = [], 0, Counter()
    with ThreadPoolExecutor(2) as pool:
        for name, (_, is_equal, answers, said) in zip(wanted, pool.map(scored, (folder / half / name for name in wanted))):
            equal += is_equal
            named = sum(answer == "named" for _, answer, _ in answers)
            lines.append(f"| {name} | {'yes' if is_equal else 'no'} | {named} of {len(answers)} |")
            for text in said[:4] if not hidden else ():
                print(f"unequal: {name}: {text[:240]}")
            for kind, answer, texts in answers:
                total[answer] += 1
                by_kind.setdefault(kind, Counter())[answer] += 1
                if answer != "named" and not hidden:
                    print(f"{answer}: {name}: {kind}: {' | '.join(text[:200] for text in texts[:5])}")
    if not hidden:
        print("\n".join(["| conversion | equal | mistakes named |", "|---|---|---|", *lines]))
        print(", ".join(f"{kind} {of['named']}/{of.total()}" for kind, of in sorted(by_kind.items())))
    print(f"{half}: conversions equal {equal} of {len(wanted)}, mistakes named {total['named']} of {total.total()}: {dict(total)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
