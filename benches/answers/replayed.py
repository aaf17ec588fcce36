"""Scores replay: `python replayed.py FOLDER --probe target/release/probe`, of a folder that `make.py --data` made. Prints counts by split.

Of a sealed case nothing else is told. The package under test is the one that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from probe.replay import fault, one, whole
from probe.replay.recorded import NotReplayed, Part, Recording
from score import visible

#: Sound calls of a sound pair that are replayed one by one.
SOUND_CALLS = 10
#: Stands in for the interpreter of `probe compare --confirm`: prints what the calls of both sides showed, which was measured once for all scores.
INTERPRETER = "#!/bin/sh\ncat {}\n"

Measured = tuple[Part, fault.Measured]


class Baselines:
    """The baseline that was measured last."""

    def __init__(self) -> None:
        self.path, self.parts = "", {}

    def of(self, path: Path) -> dict[int, Measured]:
        if self.path != str(path):
            self.path, self.parts = str(path), measured(path)
        return self.parts


def measured(path: Path) -> dict[int, Measured]:
    """The calls of every step of a dump against float64."""
    return {part.step: (part, fault.measure(part)) for part in Recording(str(path)).parts()}


def compared(probe: Path, baseline: Path, candidate: Path, lines: list[str] | None) -> list[list[Any]]:
    """The first divergence that `probe compare` names, as [[step, op]]; with `lines` as it does with `--confirm`."""
    with tempfile.TemporaryDirectory() as place:
        told, stub = Path(place, "told.toml"), Path(place, "python")
        told.write_text("\n".join([f"replay_version = {whole.REPLAY_VERSION}", *(lines or [])]) + "\n")
        stub.write_text(INTERPRETER.format(told))
        stub.chmod(0o755)
        command = [probe, "compare", baseline, candidate, "--format", "json", *(["--confirm"] if lines is not None else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PROBE_PYTHON": str(stub)})
    if not done.stdout:
        raise RuntimeError(done.stderr)
    first = json.loads(done.stdout)["first_divergence"]
    return [[first["step"], first["op"]]] if first else []


def scored(probe: Path, folder: Path, case: dict[str, Any], baselines: Baselines) -> tuple[dict[str, bool], dict[str, Any]]:
    """What each command got right of a case, and what it said."""
    baseline, candidate = folder / case["baseline"], folder / case["candidate"]
    trusted, mine = baselines.of(baseline), measured(candidate)
    (step,) = case["steps"]
    (part, own), (other, theirs) = mine[step], trusted[step]
    lines = whole._entries(part, own, theirs)
    verified = fault.judge(own)
    kinds = [found.calls for found in fault.statements(own) if not found.precision]
    said = {
        "screen": compared(probe, baseline, candidate, None),
        "confirm": compared(probe, baseline, candidate, lines),
        "verify": sorted({found.op for found in verified}) + [f"all of {calls[0]}" for calls in kinds],
        "gaps": dict(own.gaps),
    }
    if case["verdict"] == "agree":
        drawn = random.Random(case["name"])
        names = drawn.sample(sorted(own.errors), min(SOUND_CALLS, len(own.errors)))
        said["replay"] = [name for name in names if one.replay(part, name, other, "cpu", 0).guilty]
        return {way: not said[way] for way in ("screen", "confirm", "verify", "replay")}, said
    answers = [name for _, name in case["answers"]]
    calls = [name for name in answers if name in own.errors]
    said["replay"] = [(name, guilty(part, name, other)) for name in calls]
    right = {way: any(each in case["answers"] for each in said[way]) for way in ("screen", "confirm")}
    right["verify"] = bool(set(answers) & {*said["verify"], *(name for named in kinds for name in named)})
    right["verify alone"] = right["verify"] and set(said["verify"]) <= set(answers)
    if calls:
        right["replay"] = any(side == "candidate" for _, side in said["replay"])
    return right, said


def guilty(part: Part, name: str, other: Part) -> str | None:
    """Whose kernel `probe replay --op NAME --against` calls wrong."""
    try:
        return one.replay(part, name, other, "cpu", 0).guilty
    except NotReplayed as reason:
        return str(reason)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--probe", type=Path, required=True)
    arguments.add_argument("--models", default="", help="only these")
    arguments.add_argument("--wrong", type=Path, help="write the wrong answers there, of cases that are not sealed")
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cases = tomllib.loads((chosen.folder / "cases.toml").read_text())["case"]
    cases = [case for case in cases if (not chosen.models or case["model"] in chosen.models.split(",")) and visible(case, "own")]
    counts: Counter[tuple[str, str, str]] = Counter()
    baselines, wrong = Baselines(), []
    for case in sorted(cases, key=lambda case: (case["model"], case["baseline"])):
        kind = "sound" if case["verdict"] == "agree" else "faults"
        right, said = scored(chosen.probe.resolve(), chosen.folder, case, baselines)
        for way, truth in right.items():
            counts[case["split"], kind, way] += truth
            counts[case["split"], kind, f"of {way}"] += 1
        if not all(right.values()) and case["split"] != "sealed":
            size = f"; fault {case['fault']:.1e}, own noise {case['own_noise']:.1e}" if "fault" in case else ""
            wrong.append(f"{case['name']} step {case['steps'][0]}{size}\n  {case['what']}\n  expected {case.get('answers', [])}\n  right {right}\n  said {said}\n")
    if chosen.wrong:
        chosen.wrong.write_text("\n".join(wrong))
    for split, kind in sorted({key[:2] for key in counts}):
        ways = [way for way in ("replay", "confirm", "verify", "verify alone", "screen") if counts[split, kind, f"of {way}"]]
        print(f"{split} {kind}: " + ", ".join(f"{way} {counts[split, kind, way]}/{counts[split, kind, f'of {way}']}" for way in ways))


if __name__ == "__main__":
    sys.exit(main())
