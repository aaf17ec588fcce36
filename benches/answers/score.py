"""Scores a judge: `python score.py FOLDER --probe target/release/probe`. Prints tables, and writes a list of the wrong answers."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: A fault of less than this many times the rounding of its op is not asked for.
VISIBLE = 5.0


def judged(probe: Path, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The answer of `probe compare` for one pair."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report"
        done = subprocess.run(
            [probe, "compare", "-b", folder / case["baseline"], "-c", folder / case["candidate"], "-o", report, "--format", "json", "-q"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        file = report / "report.json"
        if not file.exists():
            return {
                "code": done.returncode,
                "right": False,
                "found": None,
                "said": done.stderr.strip() or f"exit code {done.returncode}",
            }
        told = json.loads(file.read_text())
    first = told["first_divergence"]
    found = [first["step"], first["op"]] if first else None
    right = (found is None and told["verdict"] == "agree") if case["verdict"] == "agree" else found in case["answers"]
    # For a mistake of a program, the right op with a wrong cause is no help.
    caused = not case.get("causes") or (first is not None and first["cause"] in case["causes"])
    said = f"{first['slot']}: {first['role']}, {first['cause']}: {first['reason']}" if first else "agree"
    return {"code": done.returncode, "right": right and caused, "found": found, "said": said, "told": told["verdict"]}


def visible(case: dict[str, Any], beside: str) -> bool:
    """The fault stands out of the error that the op's result has without it (`total`), or of the op's own rounding alone (`own`)."""
    noise = {
        "total": max(case.get("own_noise", 0.0), case.get("total_noise", 0.0)),
        "own": case.get("own_noise", 0.0),
        "none": 0.0,
    }[beside]
    return "fault" not in case or case["fault"] >= VISIBLE * noise


def group(case: dict[str, Any]) -> str:
    if case["verdict"] == "agree":
        return "alike" if case["phase"] == "alike" else "sound"
    return "late" if case["steps"][0] > 0 else case["phase"]


def table(title: str, rows: list[tuple[dict[str, Any], dict[str, Any]]], down: Any, across: Any) -> str:
    cells: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for case, answer in rows:
        for a, b in ((down(case), across(case)), (down(case), "all"), ("all", across(case)), ("all", "all")):
            cells[a, b].append(answer["right"])
    names = sorted({b for _, b in cells}, key=lambda b: (b == "all", b))
    lines = [f"| {title} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for a in sorted({a for a, _ in cells}, key=lambda a: (a == "all", a)):
        shown = [f"{sum(cells[a, b])}/{len(cells[a, b])}" if cells[a, b] else "" for b in names]
        lines.append(f"| {a} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--probe", type=Path, required=True)
    arguments.add_argument("--split", choices=("tuned", "wide", "fresh", "later", "held", "seen", "sealed", "drawn", "any", "all"), default="all")
    arguments.add_argument("--only", default="", help="cases whose name contains this")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument(
        "--beside",
        choices=("total", "own", "none"),
        default="total",
        help="the noise that a fault has to exceed five times",
    )
    arguments.add_argument("--wrong", type=Path, help="write the wrong answers there (default: FOLDER/wrong.txt)")
    arguments.add_argument("--json", type=Path, help="write every answer there")
    chosen = arguments.parse_args()
    cases = tomllib.loads((chosen.folder / "cases.toml").read_text())["case"]
    cases = [
        c
        for c in cases
        if chosen.split in ("all", c["split"]) and chosen.only in c["name"] and visible(c, chosen.beside)
    ]
    probe = chosen.probe.resolve()
    with ThreadPoolExecutor(chosen.jobs) as pool:
        answers = list(pool.map(lambda case: judged(probe, chosen.folder, case), cases))
    rows = list(zip(cases, answers, strict=True))
    lines = []
    for case, answer in rows:
        if not answer["right"] and case["split"] != "sealed":  # a sealed case that was read is none any more
            expected = " or ".join(f"step {s} {n}" for s, n in case.get("answers", [])) or "agreement"
            found = "step {} {}".format(*answer["found"]) if answer["found"] else answer.get("told", "nothing")
            size = (
                f"; fault {case['fault']:.1e}, own noise {case['own_noise']:.1e}, noise there {case['total_noise']:.1e}"
                if "fault" in case
                else ""
            )
            lines.append(
                f"{case['name']} ({case['level']} {case['task']}, {case['split']}{size})\n  {case['what']}\n"
                f"  expected {expected}\n  found    {found}: {answer['said']}\n"
            )
    (chosen.wrong or chosen.folder / "wrong.txt").write_text("\n".join(lines))
    if chosen.json:
        chosen.json.write_text(json.dumps([{**case, **answer} for case, answer in rows], indent=1))
    for split in sorted({case["split"] for case in cases}):
        part = [(c, a) for c, a in rows if c["split"] == split]
        print(f"\n## {split}\n")
        if split == "sealed":
            print(table("kind", part, group, lambda c: "statistics" if c["task"] == "statistics" else "others"))
            continue
        print(table("noise", part, lambda c: c["noise"], group), end="\n\n")
        print(table("task", part, lambda c: c["task"], group), end="\n\n")
        print(table("level", part, lambda c: c["level"], group), end="\n\n")
        print(table("model", part, lambda c: c["model"], group))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
