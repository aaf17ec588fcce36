"""Pushes forty commits of a small training through a gate, and scores what the gate says.

    python benches/history/run.py /some/folder [--probe target/release/probe] [--only REGEX] [--other-python OTHER/bin/python]

A repository is made in the folder, a baseline of its first commit, and a policy from four runs of that. Each commit is trained under
`probe capture --level module`, and held against the baseline by `probe gate --narrow`. What passes is merged, as in a project whose gate has to be
green; what does not is left out. Where the gate says that the environment moved the numbers, the baseline is refreshed. The last column says what is
wrong; the exit code is 1 where anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commits import COMMITS, Commit

PROJECT = Path(__file__).resolve().parent / "project"
#: Runs of the first commit that bounds are taken from: the number of threads of each.
CALIBRATED = ("1", "1", "2", "2")
#: Runs of a commit that changes by itself, until it has passed and failed.
TRIES = 10


@dataclass
class Place:
    """A repository, a checkout of the commit before, and everything that is written beside them."""

    folder: Path
    probe: str
    python: str
    other: str | None
    machine: dict[str, str] = field(default_factory=lambda: {"OMP_NUM_THREADS": "1"})

    @property
    def head(self) -> Path:
        return self.folder / "head"

    @property
    def base(self) -> Path:
        return self.folder / "base"

    def environment(self) -> dict[str, str]:
        names = {name: value for name, value in os.environ.items() if name not in ("MACHINE", "GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")}
        return names | self.machine | {"PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command: str, where: Path | None = None, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, cwd=where or self.folder, env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def git(self, *arguments: str, where: Path | None = None) -> str:
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
        return self.run("git", *who, *arguments, where=where or self.head).stdout.strip()

    def capture(self, name: str) -> list[Path]:
        """Trains the head once: its dump, and its losses."""
        dump, losses = self.folder / f"{name}_dump", self.folder / f"{name}.jsonl"
        self.machine["LOSSES"] = str(losses)
        self.run(self.probe, "capture", "--quiet", "--overwrite", "--level", "module", "--steps", "0-1", "-o", str(dump), "--", self.python, "train.py", where=self.head)
        del self.machine["LOSSES"]
        return [dump, losses]


def begin(place: Place, calibrated: list[str]) -> None:
    """The first commit, its baseline and the policy."""
    place.head.mkdir(parents=True)
    place.git("init", "--quiet", "--initial-branch=main")
    for file in PROJECT.glob("*.py"):
        shutil.copy(file, place.head)
    place.git("add", ".")
    place.git("commit", "--quiet", "-m", "first")
    place.git("worktree", "add", "--quiet", "--detach", str(place.base))
    runs = []
    for number, threads in enumerate(calibrated):
        place.machine["OMP_NUM_THREADS"] = threads
        runs.append(place.capture(f"first{number}"))
    place.machine["OMP_NUM_THREADS"] = calibrated[0]
    first = [str(path) for path in runs[0]]
    place.run(place.probe, "baseline", "save", *first, "-o", "gpt2.probe.json", "--reason", "first")
    place.run(place.probe, "baseline", "calibrate", *(",".join(map(str, run)) for run in runs), "-o", "probe-gate.toml")


def gate(place: Place, runs: list[Path], evidence: list[Path], out: str) -> dict[str, Any]:
    """Returns the answer of the gate for the head."""
    train = f"LOSSES=again.jsonl {shlex.quote(place.python)} train.py"
    arguments = ["gate", "--policy", "probe-gate.toml", "--baseline", "gpt2.probe.json", "--history", "history", "-o", out]
    for path in runs:
        arguments += ["--candidate", str(path)]
    for path in evidence:
        arguments += ["--evidence", str(path)]
    arguments += ["--commit", place.git("rev-parse", "HEAD"), "--source-root", str(place.head)]
    arguments += ["--narrow", "--candidate-cmd", f"cd head && {train}", "--baseline-cmd", f"cd base && {train}"]
    place.run(place.probe, *arguments, codes=(0, 1, 3))
    return json.loads((place.folder / out / "gate.json").read_text())


def apply(place: Place, commit: Commit) -> None:
    """Makes the commit, and sets the machine up."""
    if commit.machine is not None:
        place.machine = dict(commit.machine)
    if commit.other_python and place.other:
        place.python = place.other
    for change in commit.edits:
        path = place.head / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise SystemExit(f"{commit.name}: the text to be changed is {text.count(change.old)} times in {change.file}")
        path.write_text(text.replace(change.old, change.new))
    place.git("commit", "--quiet", "--allow-empty", "-a", "-m", commit.name)


def push(place: Place, commit: Commit, number: int) -> dict[str, Any]:
    """Commits, trains, gates; merges what passes."""
    apply(place, commit)
    started = time.monotonic()
    tries = TRIES if commit.expected == "flaky" else 1
    evidence: list[Path] = []
    report: dict[str, Any] = {}
    runs: list[Path] = []
    for attempt in range(tries):
        out = f"gate{number:02}_{attempt}"
        runs = place.capture("head")
        report = gate(place, runs, evidence, out)
        evidence.append(place.folder / out)
        if report["state"] == "flaky":
            break
    culprits = [culprit for culprit in report["culprits"] if culprit["waived"] is None]
    found = {
        "commit": commit.name,
        "kind": commit.kind,
        "size": commit.size,
        "expected": commit.expected,
        "state": report["state"],
        "moved_by": report["moved_by"],
        "culprit": culprits[0]["name"] if culprits else "",
        "cause": culprits[0]["cause"] if culprits else "",
        "source": culprits[0]["source"] if culprits else None,
        "narrowed": report["narrowed"],
        "notes": report["notes"],
        "environment": [difference["name"] for difference in report["environment"]["differences"]],
        "seconds": round(time.monotonic() - started, 1),
    }
    found["wrong"] = wrong(commit, found)
    settle(place, commit, report, runs)
    return found


def settle(place: Place, commit: Commit, report: dict[str, Any], runs: list[Path]) -> None:
    """Merges what passes and leaves out the rest; a baseline that is out of date is refreshed."""
    if report["state"] == commit.expected == "drift":
        files = [str(path) for path in runs]
        place.run(place.probe, "baseline", "update", "gpt2.probe.json", *files, "--accept", "--reason", commit.name, "--quiet")
    # The answer that is right decides, so that one mistake does not make others.
    if commit.expected in ("pass", "drift"):
        place.git("checkout", "--quiet", "--detach", "main", where=place.base)
    else:
        place.git("reset", "--quiet", "--hard", "HEAD~1")


def wrong(commit: Commit, found: dict[str, Any]) -> str:
    if commit.may_pass and found["state"] == "pass":
        return ""
    if found["state"] != commit.expected:
        return f"{found['state']} instead of {commit.expected}"
    if commit.expected == "drift" and found["moved_by"] != "environment":
        return "not told that the environment moved it"
    if commit.ops and not any(op.lower() in found["culprit"].lower() for op in commit.ops):
        return f"names {found['culprit']}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--probe", default=str(Path(sys.executable).with_name("probe")), help="the command [default: that beside this Python]")
    parser.add_argument("--only", default="", help="commits whose name matches this regular expression")
    parser.add_argument("--calibrated", nargs="+", default=list(CALIBRATED), metavar="THREADS", help="runs that bounds are taken from")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that trains [default: this Python]")
    parser.add_argument("--other-python", help="an interpreter with another torch, and this package")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder}: is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    found = shutil.which(arguments.probe)
    if found is None:
        parser.error(f"--probe {arguments.probe}: there is no such command")
    # Commands run in other folders. An interpreter of a virtual environment is a link, which is not to be followed.
    other = arguments.other_python and str(Path(arguments.other_python).absolute())
    place = Place(folder, str(Path(found).absolute()), str(Path(arguments.python).absolute()), other)
    begin(place, arguments.calibrated)
    results = []
    for number, commit in enumerate(COMMITS):
        if not re.search(arguments.only, commit.name):
            # Later commits change what this one has made.
            # Changes that come by themselves would make the answers on later commits a matter of chance.
            if commit.expected == "pass" and commit.edits and commit.kind != "noise":
                apply(place, commit)
                place.git("checkout", "--quiet", "--detach", "main", where=place.base)
            continue
        if commit.other_python and not place.other:
            print(f"NOT TRIED: {commit.name}: give --other-python")
            continue
        found = push(place, commit, number)
        results.append(found)
        print(f"{number:>2} {commit.kind:<11} {found['state']:<10} {commit.name:<48} {found['culprit']:<58} {found['seconds']:>6} s  {found['wrong']}", flush=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    mistakes = [found for found in results if found["wrong"]]
    at_fault = [found for found in results if found["expected"] in ("regression", "unverified")]
    caught = sum(found["state"] in ("regression", "unverified") for found in at_fault)
    named = sum(not found["wrong"] for found in at_fault)
    false = sum(found["state"] != "pass" for found in results if found["expected"] == "pass")
    sound = sum(found["expected"] == "pass" for found in results)
    print(f"{len(results)} commits: {caught} of {len(at_fault)} regressions caught, {named} with the right op, {false} of {sound} sound commits failed, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
