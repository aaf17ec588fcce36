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
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANSWERS = HERE.parent / "answers"
sys.path[:0] = [str(ANSWERS), str(HERE.parents[1] / "python" / "tests")]

import torch  # noqa: E402

import device as devices  # noqa: E402
import expected  # noqa: E402
import fork_server  # noqa: E402
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
    runs.train(model, "float32", used, fault["step"] + 1)
    if not used.hits or used.hits[0]["fault"] < size:
        return None
    return {**fault, "by": 1 + size / used.hits[0]["fault"]}


class Programs:
    """Programs that the command records, and what it records of them."""

    def __init__(self, probe: Path, level: str, folder: Path) -> None:
        self.probe, self.level, self.folder = probe, level, folder
        # Importing what the programs and replay need takes longer than everything else.
        path = os.pathsep.join(filter(None, [str(ANSWERS), os.environ.get("PYTHONPATH")]))
        self.python = fork_server.python("device", "runs", "probe.replay.confirmation", variables=(("PYTHONPATH", path),))
        self.environment = {**os.environ, "PROBE_PYTHON": self.python, "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}"}
        self.listed: dict[str, list[devices.Call]] = {}
        self.steps: dict[str, int] = {}

    def step(self, model: str) -> int:
        """The step in which faults lie. Of a program without modules, the command records nothing before the end of the first."""
        if model not in self.steps:
            self.steps[model] = 0
            if not self.recorded(model, f"{model}_base").exists():
                self.steps[model] = 1
        return self.steps[model]

    def calls(self, model: str) -> list[devices.Call]:
        """The calls of a forward pass in which a fault can lie."""
        if model not in self.listed:
            used, step = devices.Device(listing=True), self.step(model)
            runs.train(model, "float32", used, step + 1)
            known = (call for call in used.calls if call.step == step and call.phase == "forward" and call.op in plan.FORWARD and call.shapes and call.dtypes[0] == "float32")
            self.listed[model] = [call for call in known if torch.Size(call.shapes[0]).numel() >= 200 and len(call.shapes[0]) > 1]
        return self.listed[model]

    def command(self, model: str, **device: Any) -> list[str]:
        return [self.python, str(HERE / "trained.py"), model, json.dumps(device), str(self.step(model) + 1)]

    def recorded(self, model: str, name: str, **device: Any) -> Path:
        """A dump of hashes, as the command records it."""
        dump = self.folder / name
        if not dump.exists():
            options = ["--quiet", "--steps", str(self.step(model)), "--task", "hash", "--level", self.level, "-o", str(dump)]
            subprocess.run([self.probe, "capture", *options, "--", *self.command(model, **device)], env=self.environment, check=True, capture_output=True)
        return dump

    def names_of(self, model: str, fault: dict[str, Any]) -> list[str]:
        """The ops that are right as the answer for one fault: those that differ first in a run that is otherwise equal to the bit. None where the
        fault lies in what is not recorded, as the making of data is, or changes what the program does."""
        base, marked = self.recorded(model, f"{model}_base"), self.recorded(model, "marked", faults=[fault])
        try:
            found = expected.answer(base, marked, [fault["step"]], fault, self.level)
        except expected.OtherOps:
            return []
        finally:
            shutil.rmtree(marked)
        names = [name for _, name in found.names]
        # A backward op that comes first read what the making of data left behind.
        return names if found.how == "origin" and "backward" not in names[0] else []

    def named(self, model: str, faults: list[dict[str, Any]]) -> tuple[list[str], int, str]:
        """The ops that `probe narrow --inject` names, the number of runs, and its last line."""
        sides = [self.command(model), self.command(model, style="chunks", faults=faults)]
        options = ["--baseline-cmd", shlex.join(sides[0]), "--candidate-cmd", shlex.join(sides[1])]
        options += ["--steps", str(self.step(model)), *(["--level", self.level] if self.level != "mix" else [])]
        counted = self.folder / "runs"
        counted.unlink(missing_ok=True)
        environment = {**self.environment, "RUNS": str(counted)}
        done = subprocess.run([self.probe, "narrow", "--inject", *options], cwd=self.folder, capture_output=True, text=True, check=False, env=environment)
        found = re.search(r"faults? on the baseline's values: (.*)", done.stdout)
        return found[1].split("; ") if found else [], len(counted.read_text().splitlines()), (done.stdout + done.stderr).strip().splitlines()[-1]


@dataclass
class Pair:
    """Two faults of a program."""

    model: str
    faults: list[dict[str, Any]]
    #: The ops that are right, of each.
    names: list[list[str]]
    #: By how much the second is smaller.
    smaller: float


def pairs(of: Programs, count: int) -> Iterator[Pair]:
    draw = random.Random(39)
    for made in range(count):
        model = sorted(programs.SEEN)[made % len(programs.SEEN)]
        drawn = (drawn_pair(of, model, draw) for _ in range(DRAWS))
        pair = next((pair for pair in drawn if pair is not None), None)
        if pair is None:
            raise RuntimeError(f"{model}: no pair of faults fits")
        yield pair


def drawn_pair(of: Programs, model: str, draw: random.Random) -> Pair | None:
    """Two faults; None if they cannot be as large as they are to be, or the command does not record them as two."""
    first, second = sorted(draw.sample(range(len(of.calls(model))), 2))
    calls = [of.calls(model)[at] for at in (first, second)]
    kinds = [{"op": call.op, "phase": "forward", "step": call.step, "call": call.call, "what": draw.choice(KINDS), "place": draw.uniform(0.1, 0.9)} for call in calls]
    sizes = [FIRST[0] * (FIRST[1] / FIRST[0]) ** draw.random()]
    sizes.append(sizes[0] / (SMALLER[0] * (SMALLER[1] / SMALLER[0]) ** draw.random()))
    faults = [fault for kind, size in zip(kinds, sizes) if (fault := sized(kind, model, size))]
    if len(faults) < 2:
        return None
    names = [of.names_of(model, fault) for fault in faults]
    is_two = all(names) and not set(names[0]) & set(names[1])
    return Pair(model, faults, names, sizes[0] / sizes[1]) if is_two else None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=30)
    arguments.add_argument("--level", default="mix", choices=("mix", "api", "op"))
    arguments.add_argument("--probe", type=Path, required=True)
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    both = most = more = 0
    with tempfile.TemporaryDirectory() as made:
        of = Programs(chosen.probe.resolve(), chosen.level, Path(made))
        for pair in pairs(of, chosen.pairs):
            said, count, last = of.named(pair.model, pair.faults)
            found = [any(name in said for name in names) for names in pair.names]
            extra = [name for name in said if not any(name in names for names in pair.names)]
            both, most, more = both + all(found), max(most, count), more + bool(extra)
            sizes = ", ".join(f"aten::{fault['op']} call {fault['call']} {fault['what']} by {fault['by']:.4g}" for fault in pair.faults)
            right = f"; right {pair.names}" if not all(found) or extra else ""
            word = "both" if all(found) else "MISSED"
            print(f"{word} {pair.model}: {sizes}, {pair.smaller:.0f} times smaller; {count} runs; said {said}{right}; {last}", flush=True)
    print(f"{chosen.pairs} pairs at level {chosen.level}: both found in {both}, in at most {most} runs; other ops named as well in {more}")
    sys.exit(both < chosen.pairs)


if __name__ == "__main__":
    main()
