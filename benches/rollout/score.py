"""Asks `probe rollout` about the pairs of make.py: score.py FOLDER HALF [--again]. Of a sealed half it prints counts alone. With `--again`, the pass of the trainer with
other kernels is given where there is one.

The last two columns are pairs of at least twice the noise, which is the mean of |d| of the sound pair with the most rows of the same model and type, and those of
them with the right answer. Of causes that hide in rounding it is what no bookkeeping explains that counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from faults import EXPECTED

# What may be answered as well: the class is right, the name is not.
CLASS = {"position": ("weights",), "padding": ("weights", "position"), "quantized": ("weights",)}
# Diffuse causes hide in what rounding explains.
HIDDEN = ("weights", "quantized", "precision", "position", "padding", "penalty", "soft-cap")
BOUND = {"float32": 1e-4, "bfloat16": 0.03}


def judged(expected: list[str], found: list[str], rest: float, dtype: str) -> str:
    if sorted(found) == sorted(expected):
        return "named"
    if not expected:
        return "false"
    if rest <= BOUND[dtype] and sorted(found) == sorted(cause for cause in expected if cause not in HIDDEN):
        return "hidden"
    lacking, more = [cause for cause in expected if cause not in found], [cause for cause in found if cause not in expected]
    if all(set(found) & set(CLASS.get(cause, ())) for cause in lacking) and len(more) <= len(lacking):
        return "class"
    if not lacking:
        return "more"
    return "missed" if not found else "wrong"


def noise_of(pairs: list[dict], steps: dict[int, dict]) -> float:
    """Mean of |d| of the sound pair with the most rows; infinite if there is none."""
    sound = [(pair["rows"], at) for at, pair in enumerate(pairs) if pair["fault"] == "sound"]
    return steps[max(sound)[1]]["all"]["mean_abs"] if sound else float("inf")


def main(folder: Path, half: str, again: bool) -> None:
    program = os.environ.get("PROBE_BIN", "probe")
    counts: dict[str, Counter[str]] = {}
    for place in sorted((folder / half).glob("*/*.json")):
        dtype, model = place.parts[-2], place.stem
        second = {kind: place.with_name(f"{place.stem}-{kind}") for kind in ("quantized", *(["again"] if again else []))}
        passes = [word for kind, passed in second.items() if passed.exists() for word in (f"--{kind}", passed)]
        done = subprocess.run([program, "rollout", place.with_suffix(""), *passes, "--dtype", dtype, "--format", "json"], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        steps = {step["step"]: step for step in json.loads(done.stdout)["steps"]}
        pairs = json.loads(place.read_text())
        noise = noise_of(pairs, steps)
        for at, pair in enumerate(pairs):
            step = steps[at]
            found = [finding["cause"] for finding in step["findings"]]
            answer = judged(pair["expected"], found, step["rest"]["mean_abs"], dtype)
            of = counts.setdefault(pair["fault"], Counter())
            of[answer] += 1
            size = step["rest" if set(pair["expected"]) & set(HIDDEN) else "all"]["mean_abs"]
            if pair["expected"] and size >= 2 * noise:
                of["twice"] += 1
                of["right"] += answer == "named"
            if half == "seen" and answer not in ("named", "hidden"):
                said = "; ".join(finding["evidence"][:110] for finding in step["findings"])
                print(f"{answer}: {pair['fault']} {model} {dtype} {pair['rows']} rows, mean |d| {step['all']['mean_abs']:.2e}: {found} {said}")
    order = ("named", "class", "hidden", "more", "missed", "wrong", "false", "twice", "right")
    print(f"{half:24}" + "".join(f"{word:>8}" for word in order))
    total: Counter[str] = Counter()
    for fault in EXPECTED:
        if fault in counts:
            print(f"{fault:24}" + "".join(f"{counts[fault][word] or '':>8}" for word in order))
            total += counts[fault]
    print(f"{'all':24}" + "".join(f"{total[word] or '':>8}" for word in order))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--again" in sys.argv[3:])
