"""Damages files and counts answers: `python damage.py --probe target/debug/probe [--each 200] [--only KIND]`. Needs no torch.

Of each kind of file that probe reads, copies are changed in one place (a bit, a few bytes, zeros, a byte more or less, an end that is missing), the
same in every run, and the command that reads them is run. It may refuse them, or give another answer. It must not panic, and must not say `agree`
of a dump of which it read less than there is.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
#: Answers, in the order of the table.
ANSWERS = ("refused", "incomplete", "another answer", "agree, and a note", "agree, within tolerance", "the same answer", "silent", "panic")
#: Verdicts of values that were not compared.
IDLE = ("missing", "unknown", "unreadable")

Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class Kind:
    """A kind of file."""

    name: str
    #: Files that are damaged in turns.
    files: list[Path]
    #: Arguments of the command that reads them.
    command: list[str]
    #: Files in which the command writes its answer, beside the text it prints.
    written: list[Path] = field(default_factory=list)
    #: True if the command compares, and prints a report in JSON.
    compares: bool = False


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with one change."""
    if not data:
        return b"\0"
    place = draw.randrange(len(data))
    way = draw.choices(("bit", "bytes", "zeros", "end", "less", "more"), (60, 12, 10, 8, 5, 5))[0]
    if way == "bit":
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1:]
    if way == "bytes":
        return (data[:place] + draw.randbytes(8) + data[place + 8:])[:len(data)]
    if way == "zeros":
        return (data[:place] + bytes(64) + data[place + 64:])[:len(data)]
    if way == "end":
        return data[:place]
    return data[:place] + data[place + 1:] if way == "less" else data[:place] + b"\x41" + data[place:]


def dump(name: str, source: Path, place: Path) -> Kind:
    """A dump, or a file of tensors, held against itself."""
    copy = place / "copies" / name.replace(" ", "_") / source.name
    copy.parent.mkdir(parents=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file()) if copy.is_dir() else [copy]
    return Kind(name, files, ["compare", str(source), str(copy), "--format", "json"], compares=True)


def kinds(run: Run, place: Path) -> Iterator[Kind]:
    """Yields all kinds, with sound files."""
    sound = place / "sound"
    sound.mkdir()
    statistics = TESTDATA / "faults" / "gpt_rank1_linear_L1_statistics" / "baseline"
    for name, source in (("data", TESTDATA / "faults/conv_bf16_round_L1_tensor/baseline"), ("statistics", statistics), ("sketches", TESTDATA / "gpu/mlp/good")):
        run("convert", source, "-o", sound / name)
        yield dump(f"dump of probe, {name}", sound / name, place)
    yield dump("dump of probe, before seals", TESTDATA / "native/version3", place)
    yield dump("dump of msprobe, data", TESTDATA / "faults/conv_bf16_round_L1_tensor/baseline", place)
    yield dump("dump of msprobe, statistics", statistics, place)
    yield dump("dump of CANN", TESTDATA / "cann/baseline", place)
    yield dump("dump of MindSpore", TESTDATA / "mindspore/dumped", place)
    yield dump("files of tensors", TESTDATA / "mindspore/net.safetensors", place)
    pack = shutil.copy(TESTDATA / "packs/base.zip", sound / "pack.zip")
    yield Kind("pack", [Path(pack)], ["config-check", str(TESTDATA / "packs/base.zip"), str(pack), "--format", "json"])
    yield from runs_of_shards(run, sound, statistics)
    yield from gates(run, sound, statistics)
    result = sound / "result"
    run("compare", statistics, statistics.parent / "candidate", "-o", result, "-q")
    page = result / "page.html"
    yield Kind("result", [result / "result.parquet"], ["report", str(result / "result.parquet"), "-o", str(page), "-q"], [page])


def runs_of_shards(run: Run, sound: Path, baseline: Path) -> Iterator[Kind]:
    folder = sound / "run"
    plan = folder / "plan.json"
    run("plan", baseline, baseline.parent / "candidate", "-o", folder)
    yield Kind("plan", [plan], ["compare", "--plan", str(plan), "--shard", "1/2", "-q"])
    for shard in ("1/2", "2/2"):
        run("compare", "--plan", plan, "--shard", shard, "-q")
    parts = sorted(path for path in folder.rglob("*") if path.is_file() and path != plan)
    yield Kind("shard", parts, ["merge", str(folder), "--format", "json,html"], [folder / "result.html"])


def gates(run: Run, sound: Path, dump: Path) -> Iterator[Kind]:
    losses, baseline, policy = sound / "losses.csv", sound / "base.probe.json", sound / "probe-gate.toml"
    losses.write_text("step,loss\n" + "".join(f"{step},{2.5 / (step + 1)}\n" for step in range(40)))
    run("baseline", "save", dump, losses, "-o", baseline, "--reason", "measured", "--allow-nonfinite", "masks")
    run("baseline", "calibrate", losses, losses, losses, "-o", policy)
    command = ["gate", "-b", str(baseline), "-c", str(dump), "-c", str(losses), "-p", str(policy), "--format", "json", "-o", "-"]
    yield Kind("baseline", [baseline], command)
    yield Kind("policy", [policy], command)
    yield Kind("scalars", [losses], command)


def said(kind: Kind, done: subprocess.CompletedProcess[str]) -> Any:
    """A command's answer, without times."""
    try:
        found: Any = json.loads(done.stdout)
        found = {name: value for name, value in found.items() if name not in ("seconds", "created", "time", "at")}
    except ValueError:
        found = done.stdout
    return done.returncode, found, [path.read_bytes() if path.exists() else b"" for path in kind.written]


def answer(kind: Kind, sound: Any, done: subprocess.CompletedProcess[str]) -> str:
    """Returns the word of an answer."""
    if done.returncode not in (0, 1, 2, 3) or "panicked" in done.stderr:
        return "panic"
    if done.returncode == 2:
        return "refused"
    if done.returncode == 3 and sound[0] != 3:
        return "incomplete"
    found = said(kind, done)
    if found == sound:
        return "the same answer"
    if not kind.compares or done.returncode:
        return "another answer"
    now, before = (each[1]["counts"] for each in (found, sound))
    if found[1]["notes"] != sound[1]["notes"]:
        return "agree, and a note"
    if any(now["verdicts"][word] != before["verdicts"][word] for word in IDLE) or any(now[name] != before[name] for name in ("ops_paired", "slots", "parts")):
        return "silent"
    return "agree, within tolerance" if now["verdicts"] != before["verdicts"] else "the same answer"


def score(kind: Kind, run: Run, each: int, show: Callable[[str], None]) -> Counter[str]:
    first = run(*kind.command)
    sound, draw = said(kind, first), random.Random(kind.name)
    counts: Counter[str] = Counter()
    for number in range(each):
        path = kind.files[number % len(kind.files)]
        before = path.read_bytes()
        path.write_bytes(damaged(before, draw))
        for written in kind.written:
            written.unlink(missing_ok=True)
        done = run(*kind.command)
        word = answer(kind, sound, done)
        counts[word] += 1
        if word in ("panic", "silent"):
            show(f"{kind.name}, change {number} of {path.name}: {word}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        path.write_bytes(before)
    return counts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--probe", type=Path, required=True)
    arguments.add_argument("--each", type=int, default=200, help="changes of each kind of file [default: 200]")
    arguments.add_argument("--only", default="", help="only kinds whose name contains this")
    chosen = arguments.parse_args()
    total: Counter[str] = Counter()
    print("| file | runs | " + " | ".join(ANSWERS) + " |\n|" + "---|" * (len(ANSWERS) + 2), flush=True)
    with tempfile.TemporaryDirectory() as made:
        def run(*words: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run([chosen.probe.resolve(), *map(str, words)], cwd=made, capture_output=True, text=True, errors="replace", check=False)

        for kind in kinds(run, Path(made)):
            if chosen.only in kind.name:
                counts = score(kind, run, chosen.each, lambda text: print(text, file=sys.stderr))
                total += counts
                print(f"| {kind.name} | {counts.total()} | " + " | ".join(str(counts[word]) for word in ANSWERS) + " |", flush=True)
    print(f"| all | {total.total()} | " + " | ".join(str(total[word]) for word in ANSWERS) + " |")
    sys.exit(bool(total["panic"] + total["silent"]))


if __name__ == "__main__":
    main()
