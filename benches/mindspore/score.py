"""score.py FOLDER: compares the runs of PyTorch with those of MindSpore, and those of one framework with one another, and says how many
faults are named and how many sound pairs are accused. `PROBE_BIN` names the program. Exit code 1 if fewer than 95 % of the faults
are named, or any sound pair is accused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from runs import LEVELS, NETWORKS, TYPES, Fault, faults

#: Primitives of MindSpore's cells, by the function of which they are the part that was made wrong.
_PRIMITIVES = {"linear": "MatMul", "conv2d": "Conv2D", "embedding": "Gather", "layer_norm": "LayerNorm"}


def compare(baseline: Path, candidate: Path) -> dict:
    """Returns the report of a comparison."""
    program = shlex.split(os.environ.get("PROBE_BIN", f"{sys.executable} -m probe"))
    done = subprocess.run([*program, "compare", baseline, candidate, "--format", "json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{baseline} {candidate}: {done.stderr}")
    return json.loads(done.stdout)


def is_named(fault: Fault, op: str) -> bool:
    """Returns true if `op` is the call that was made wrong."""
    words = op.split(".")
    names = {fault.function, _PRIMITIVES.get(fault.function)}
    return bool(names.intersection(words)) and words[-1] == "forward" and words[-2] == str(fault.call)


def sound_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Returns the pairs of sound runs that were recorded."""
    found = []
    for name in (f"{network}-{dtype}-{level}" for network in NETWORKS for dtype in TYPES for level in LEVELS):
        torch, mindspore = folder / "torch" / name, folder / "mindspore" / name
        if torch.is_dir() and mindspore.is_dir():
            found += [(torch, mindspore), (mindspore, torch)]
    return found


def main(folder: Path) -> None:
    pairs, accused = sound_pairs(folder), []
    for baseline, candidate in pairs:
        if found := compare(baseline, candidate)["first_divergence"]:
            accused.append(f"{baseline.parent.name} {baseline.name}: {found['op']} {found.get('cause')}")
    print(f"sound pairs: {len(pairs)}, accused: {len(accused)}", *accused, sep="\n  ")
    total = [0, 0]
    for across in (True, False):
        named, missed = {True: [0, 0], False: [0, 0]}, []
        for fault in faults():
            baseline = ({"torch": "mindspore", "mindspore": "torch"}[fault.framework]) if across else fault.framework
            found = compare(folder / baseline / f"{fault.network}-float32-mix", folder / fault.framework / fault.name)["first_divergence"] or {}
            hit = is_named(fault, found.get("op", "none"))
            named[fault.unseen][0] += hit
            named[fault.unseen][1] += 1
            if not hit and not fault.unseen:
                missed.append(f"{fault.framework} {fault.name}: {found.get('op')} {found.get('cause')}")
        print("against the other framework" if across else "against the same framework")
        print("  faults that were looked at: {} of {} named".format(*named[False]), *missed, sep="\n    ")
        print("  faults kept unseen: {} of {} named".format(*named[True]))
        total = [sum(counts) for counts in zip(total, *named.values())]
    sys.exit(bool(accused) or total[0] < 0.95 * total[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
