"""score.py FOLDER: compares the runs of PyTorch with those of MindSpore, and says how many faults are named and how many sound pairs
are accused. `PROBE_BIN` names the program. Exit code 1 if fewer than 95 % of the faults are named, or any sound pair is accused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from runs import NETWORKS, TYPES, faults


def compare(baseline: Path, candidate: Path) -> dict:
    program = shlex.split(os.environ.get("PROBE_BIN", f"{sys.executable} -m probe"))
    done = subprocess.run([*program, "compare", baseline, candidate, "--format", "json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{baseline} {candidate}: {done.stderr}")
    return json.loads(done.stdout)


def main(folder: Path) -> None:
    sound, accused = 0, []
    pairs = [(f"{network}-{dtype}-{level}",) * 2 for network in NETWORKS for dtype in TYPES for level in ("mix", "module")]
    for name, _ in pairs:
        torch, mindspore = folder / "torch" / name, folder / "mindspore" / name
        if torch.is_dir() and mindspore.is_dir():
            for baseline, candidate in ((torch, mindspore), (mindspore, torch)):
                sound += 1
                found = compare(baseline, candidate)["first_divergence"]
                if found:
                    accused.append(f"{baseline.parent.name} {name}: {found['op']} {found.get('cause')}")
    named = {True: [0, 0], False: [0, 0]}
    missed = []
    for fault in faults():
        right = f"{fault.network}-float32-mix"
        other = "torch" if fault.framework == "mindspore" else "mindspore"
        found = compare(folder / other / right, folder / fault.framework / fault.name)["first_divergence"] or {}
        words = found.get("op", "none").split(".")
        hit = fault.function in words and words[-1] == "forward" and words[-2] == str(fault.call)
        named[fault.unseen][0] += hit
        named[fault.unseen][1] += 1
        if not hit and not fault.unseen:
            missed.append(f"{fault.framework} {fault.name}: {found.get('op')} {found.get('cause')}")
    print(f"sound pairs: {sound}, accused: {len(accused)}", *accused, sep="\n  ")
    print(f"faults that were looked at: {named[False][0]} of {named[False][1]} named", *missed, sep="\n  ")
    print(f"faults kept unseen: {named[True][0]} of {named[True][1]} named")
    total = [sum(counts) for counts in zip(*named.values())]
    sys.exit(bool(accused) or total[0] < 0.95 * total[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
