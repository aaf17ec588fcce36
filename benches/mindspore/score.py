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

from runs import FRAMEWORKS, LEVELS, NETWORKS, OPTIMIZERS, TYPES, Fault, faults

#: Primitives of MindSpore's cells, by the function of which they are the part that was made wrong.
_PRIMITIVES = {"linear": "MatMul", "conv2d": "Conv2D", "embedding": "Gather", "layer_norm": "LayerNorm", "batch_norm": "BatchNorm"}


def compare(baseline: Path, candidate: Path) -> dict:
    """Returns the report of a comparison."""
    program = shlex.split(os.environ.get("PROBE_BIN", f"{sys.executable} -m probe"))
    done = subprocess.run([*program, "compare", baseline, candidate, "--format", "json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{baseline} {candidate}: {done.stderr}")
    return json.loads(done.stdout)


def is_named(fault: Fault, found: dict) -> bool:
    """Returns true if the finding is what was made wrong: the call, its gradient, the module of the weight, or the optimizer."""
    words = found.get("op", "none").split(".")
    if fault.optimizer is not None:
        # PyTorch's own steps are recorded, so that one of their ops can be named.
        return found.get("cause") == "optimizer" or "make_torch.py" in (found.get("source") or "")
    if fault.kind == "unloaded":
        module = fault.place.rpartition(".")[0]
        return module in (found.get("module"), ".".join(words[1 : 1 + len(module.split("."))]))
    names = {fault.place, _PRIMITIVES.get(fault.place)}
    phase = "backward" if fault.kind == "gradient" else "forward"
    return bool(names.intersection(words)) and words[-1] == phase and words[-2] == str(fault.call)


def sound_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Returns the pairs of sound runs that were recorded."""
    names = [f"{network}-{dtype}-{level}" for network in NETWORKS for dtype in TYPES for level in LEVELS]
    names += [f"{network}-{optimizer}-mix" for network in NETWORKS for optimizer in OPTIMIZERS]
    found = []
    for name in names:
        torch, mindspore = (folder / framework / name for framework in FRAMEWORKS)
        if torch.is_dir() and mindspore.is_dir():
            found += [(torch, mindspore), (mindspore, torch)]
    return found


def main(folder: Path) -> None:
    pairs, accused = sound_pairs(folder), []
    for baseline, candidate in pairs:
        if found := compare(baseline, candidate)["first_divergence"]:
            accused.append(f"{baseline.parent.name} {baseline.name}: {found['op']} {found.get('cause')}")
    print(f"sound pairs: {len(pairs)}, accused: {len(accused)}", *accused, sep="\n  ")
    # By group: named and all, of those looked at and those unseen, across frameworks and within one.
    counts: dict[str, list[int]] = {}
    for fault in faults():
        other = next(framework for framework in FRAMEWORKS if framework != fault.framework)
        for at, framework in enumerate((other, fault.framework)):
            found = compare(folder / framework / fault.sound, folder / fault.framework / fault.name)["first_divergence"] or {}
            hit = is_named(fault, found)
            place = 4 * at + 2 * fault.unseen
            row = counts.setdefault(fault.group, [0] * 8)
            row[place] += hit
            row[place + 1] += 1
            if not hit and not fault.unseen:
                print(f"  {framework} {fault.framework} {fault.name}: {found.get('op')} {found.get('module')} {found.get('cause')}: {found.get('reason')}")
    total = [sum(column) for column in zip(*counts.values())]
    print("\n| named of all | other framework, looked at | other framework, unseen | same framework, looked at | same framework, unseen |")
    print("|---|---|---|---|---|")
    for name, row in [*counts.items(), ("all", total)]:
        print(f"| {name} | {row[0]} of {row[1]} | {row[2]} of {row[3]} | {row[4]} of {row[5]} | {row[6]} of {row[7]} |")
    sys.exit(bool(accused) or sum(total[::2]) < 0.95 * sum(total[1::2]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
