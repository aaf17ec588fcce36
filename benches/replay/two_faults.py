"""Scores `probe narrow --inject`: `python two_faults.py [--pairs 30] [--level mix]`. A program is trained on a device with two kernels at fault; the second
stands behind the first, and its error is 10 to 100 times smaller. Both have to be named. Counts runs of the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANSWERS = HERE.parent / "answers"
sys.path.insert(0, str(ANSWERS))

import torch  # noqa: E402

import device as devices  # noqa: E402
import expected  # noqa: E402
import plan  # noqa: E402
import programs  # noqa: E402
import runs  # noqa: E402

#: Kinds of fault that are dealt, whose size can be chosen.
KINDS = ("scale", "row", "tail", "channel")
#: Sizes of the first fault, relative to its result, and how many times smaller the second is.
FIRST, SMALLER = (3e-2, 3e-1), (10.0, 100.0)
#: Draws of a pair, of which the first that fits is taken.
DRAWS = 40


def sized(fault: dict[str, Any], model: str, size: float) -> dict[str, Any] | None:
    """The fault with an error of this size, relative to the norm of its result; None if that takes more than doubling a part of it."""
    used = devices.Device(faults=[{**fault, "by": 2.0}])
    runs.train(model, "float32", used, 1)
    if not used.hits or used.hits[0]["fault"] < size:
        return None
    return {**fault, "by": 1 + size / used.hits[0]["fault"]}


def pairs(count: int) -> Iterator[tuple[str, list[dict[str, Any]], float]]:
    """Yields programs with two faults each, and by how much the second is smaller."""
    draw, made = random.Random(39), 0
    listed: dict[str, list[devices.Call]] = {}
    while made < count:
        model = sorted(programs.SEEN)[made % len(programs.SEEN)]
        if model not in listed:
            used = devices.Device(listing=True)
            runs.train(model, "float32", used, 1)
            listed[model] = [call for call in used.calls if call.phase == "forward" and call.op in plan.FORWARD and call.shapes and call.dtypes[0] == "float32"]
        for _ in range(DRAWS):
            first, second = sorted(draw.sample(range(len(listed[model])), 2))
            calls = [listed[model][at] for at in (first, second)]
            if any(torch.Size(call.shapes[0]).numel() < 200 or len(call.shapes[0]) < 2 for call in calls):
                continue
            kinds = [{"op": call.op, "phase": "forward", "step": 0, "call": call.call, "what": draw.choice(KINDS), "place": draw.uniform(0.1, 0.9)} for call in calls]
            sizes = [FIRST[0] * (FIRST[1] / FIRST[0]) ** draw.random()]
            sizes.append(sizes[0] / (SMALLER[0] * (SMALLER[1] / SMALLER[0]) ** draw.random()))
            faults = [sized(kind, model, size) for kind, size in zip(kinds, sizes)]
            if None not in faults:
                yield model, [fault for fault in faults if fault], sizes[0] / sizes[1]
                made += 1
                break
        else:
            raise RuntimeError(f"{model}: no pair of faults fits")


def names_of(model: str, fault: dict[str, Any], level: str, folder: Path) -> list[str]:
    """The ops that are right as the answer for one fault: those that differ first in a run that is otherwise equal to the bit."""
    def recorded(name: str, **what: Any) -> Path:
        runs.train(model, "float32", devices.Device(**what), 1, runs.Recorder(folder / name, level, "hash", [0]))
        return folder / name

    base = folder / "base"
    if not base.exists():
        recorded("base")
    marked = recorded(f"marked_{len(list(folder.iterdir()))}", faults=[fault])
    return [name for _, name in expected.answer(base, marked, [0], fault, level).names]


def named(model: str, faults: list[dict[str, Any]], level: str, probe: Path, folder: Path) -> tuple[list[str], int, str]:
    """The ops that `probe narrow --inject` names, the number of runs, and its last line."""
    command = [sys.executable, str(HERE / "trained.py"), model]
    other = [*command, json.dumps({"style": "chunks", "faults": faults})]
    counted = folder / "runs"
    options = ["--baseline-cmd", shlex.join(command), "--candidate-cmd", shlex.join(other), *(["--level", level] if level != "mix" else [])]
    environment = {**os.environ, "RUNS": str(counted), "PROBE_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([probe, "narrow", "--inject", *options], cwd=folder, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"faults? on the baseline's values: (.*)", done.stdout)
    return found[1].split("; ") if found else [], len(counted.read_text().splitlines()), (done.stdout + done.stderr).strip().splitlines()[-1]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=30)
    arguments.add_argument("--level", default="mix", choices=("mix", "api", "op"))
    arguments.add_argument("--probe", type=Path, required=True)
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    both = most = more = 0
    for model, faults, smaller in pairs(chosen.pairs):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            right = [names_of(model, fault, chosen.level, folder) for fault in faults]
            said, count, last = named(model, faults, chosen.level, chosen.probe.resolve(), folder)
        found = [any(name in said for name in names) for names in right]
        extra = [name for name in said if not any(name in names for names in right)]
        both, most, more = both + all(found), max(most, count), more + bool(extra)
        sizes = ", ".join(f"aten::{fault['op']} call {fault['call']} {fault['what']} by {fault['by']:.4g}" for fault in faults)
        print(f"{'both' if all(found) else 'MISSED'} {model}: {sizes}, {smaller:.0f} times smaller; {count} runs; said {said}; right {right if not all(found) or extra else ''}; {last}", flush=True)
    print(f"{chosen.pairs} pairs at level {chosen.level}: both found in {both}, in at most {most} runs; other ops named as well in {more}")
    sys.exit(both < chosen.pairs)


if __name__ == "__main__":
    main()
