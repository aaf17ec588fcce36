"""Makes the suite: `python make.py FOLDER [--models llama,bert] [--jobs 2]`. Dumps, and `cases.toml` with the right answers.

Every model has a process of its own. A baseline is recorded once for all cases that share it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: Models of the reduced set: one that is all products and norms, one of convolutions, one of torch alone.
SMALL = ["llama", "resnet", "encoder"]

#: Seconds beyond which an architecture that nobody chose is left out.
SLOW = 8


def work(model: str, folder: Path, tools: list[str], small: bool, data: bool, deal: int, late: bool) -> None:
    """All cases of one model, and their answers in `MODEL/cases.json`."""
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    import device
    import edits
    import expected
    import models
    import plan
    import runs

    kind = models.kind(model)
    (folder / model).mkdir(parents=True, exist_ok=True)
    (folder / model / "cases.json").write_text("[]")
    calls: dict[str, list[device.Call]] = {}
    for precision in runs.PRECISIONS:
        listed = device.Device(listing=True)
        began = time.monotonic()
        try:
            losses = runs.train(model, precision, listed, 2)
            if kind.split == "any" and time.monotonic() - began > SLOW:
                raise RuntimeError(f"two steps take more than {SLOW} s")
        except Exception as error:
            if kind.split not in ("later", "any"):
                raise
            print(f"{model} does not run in {precision}: {error}", file=sys.stderr)
            continue
        if all(map(math.isfinite, losses)):
            calls[precision] = listed.calls
    if not calls:
        return
    possible = [] if kind.program else edits.possible(kind.make(torch.float32)[0])
    planner = plan.Planner(model, kind.split, kind.optimizer, calls, possible, deal)
    deals = {"wide": plan.DEALT_SHORT, "fresh": plan.DEALT_SHORT, "later": plan.DEALT_LATER, "any": plan.DEALT_ANY}
    dealt, older = (plan.DEALT_SMALL, {}) if small else deals.get(kind.split, (plan.DEALT, plan.DEALT_OLDER))
    if data:
        planned = plan.with_data(planner)
    elif late:
        planned = plan.of_late_steps(planner, kind.program) if kind.program else []
    else:
        planned = plan.of_program(planner, kind.program) if kind.program else plan.plan(planner, dealt, older)
    cases = [case for case in planned if case.tool in tools]
    tapes: dict[str, dict[device.Key, list[torch.Tensor]]] = {}
    for precision in calls:
        planned = [c for c in cases if c.precision == precision and c.faults]
        tapes[precision] = {(f["op"], f["phase"], f["step"], f["call"]): [] for case in planned for f in case.faults}
        runs.train(model, precision, device.Device(tape=tapes[precision]), max((c.trained for c in planned), default=0))
    base = folder / model
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)

    def recorded(
        where: Path,
        case: plan.Case,
        task: str,
        tool: str | None = None,
        edit: dict[str, Any] | None = None,
        **what: Any,
    ) -> device.Device:
        tool = tool or case.tool

        def run() -> device.Device:
            used = device.Device(**what)
            recorder = runs.RECORDERS[tool](where, case.level, task, case.steps)
            runs.train(model, case.precision, used, case.trained, recorder, edit=edit, optimizer=case.optimizer)
            # They do not travel between processes, and are not needed any more.
            used.reference, used.aside = None, contextlib.nullcontext
            return used

        return run() if tool == "probe" else runs.forked(run)

    def baseline(case: plan.Case, task: str, tool: str | None = None) -> Path:
        tool = tool or case.tool
        last = "-".join(map(str, case.steps))
        where = (
            base
            / "baselines"
            / f"{case.precision.replace(' ', '-')}_{case.optimizer}_{tool}_{case.level}_{task}_{last}"
        )
        if not where.exists():
            recorded(where, case, task, tool)
        return where

    def right_answers(case: plan.Case) -> list[expected.Answer]:
        """One for each fault of the case, in order."""
        marked, found = base / "marked", []
        sources: list[dict[str, Any]] = [{"edit": case.edit}] if case.edit and case.phase != "alike" else []
        sources += [{"faults": [fault]} for fault in case.faults if fault["step"] in case.steps]
        for source in sources:
            shutil.rmtree(marked, ignore_errors=True)
            # Behind the first step all weights differ, so that nothing but the first step tells where a mistake arises.
            told = dataclasses.replace(case, trained=1, steps=[0]) if late else case
            recorded(marked, told, "hash", "probe", **source)
            if case.phase == "mistake":
                # Arguments of functions are not recorded with modules alone. Nor are functions: asked of broad programs since they came.
                unseen = {"argument", "structure"} if kind.program and kind.program.broad else {"argument"}
                answer = expected.mistake(told.steps, baseline(told, "hash", "probe"), marked)
                answer.names = [(case.steps[0] if late else step, name) for step, name in answer.names]
                # Nor is a cause where the forward pass of modules shows nothing.
                hidden = all(".forward" not in name for _, name in answer.names)
                case.causes = () if case.level == "module" and (hidden or unseen & set(case.causes)) else case.causes
                found.append(answer)
            elif case.edit:
                found.append(
                    expected.structure(case.steps, baseline(case, "hash", "probe"), marked, case.edit["module"])
                )
            else:
                found.append(
                    expected.answer(
                        baseline(case, "hash", "probe"), marked, case.steps, source["faults"][0], case.level
                    )
                )
        shutil.rmtree(marked, ignore_errors=True)
        return found

    done: list[dict[str, Any]] = []
    for case in cases:
        answers = right_answers(case)
        if any(a.how == "hidden" for a in answers):
            continue
        candidate = base / case.name
        used = recorded(
            candidate, case, case.task, edit=case.edit, style=case.style, products=case.products, faults=case.faults,
            reference=tapes[case.precision],
        )  # fmt: skip
        if case.faults and not used.hits:
            # Routing of tokens went another way on the other device, and the call does not exist.
            shutil.rmtree(candidate)
            continue
        if case.tool != "probe":
            seen = expected.recorded_names(candidate, case.steps[0]) | expected.recorded_names(baseline(case, case.task), case.steps[0])
            answers = [
                expected.Answer([n for n in a.names if n[1] in seen or n[0] > case.steps[0]], a.how) for a in answers
            ]
            if any(not a.names for a in answers):
                shutil.rmtree(candidate)
                continue
        # The fault in the earlier step comes first; in one step the forward pass does.
        answers.sort(key=lambda a: min((step for step, _ in a.names), default=0))
        row = {
            **case.as_dict(),
            "baseline": str(baseline(case, case.task).relative_to(folder)),
            "candidate": str(candidate.relative_to(folder)),
            "verdict": "diverged" if answers else "agree",
            "how": answers[0].how if answers else "",
            "answers": answers[0].names if answers else [],
            **(measured(used, case) if case.faults else {}),
        }
        if len(answers) > 1:
            row["others"] = [name for a in answers[1:] for name in a.names]
        done.append(row)
    shutil.rmtree(base / "marked", ignore_errors=True)
    (base / "cases.json").write_text(json.dumps(done, indent=1))


def measured(used: Any, case: Any) -> dict[str, float]:
    """Size of the first fault, the rounding of its op (its own, or what is usual for the op) and the error without it."""
    hits = [h for h in used.hits if h["key"][2] in case.steps]
    hit = min(hits, key=lambda h: ("forward", "backward", "optimizer").index(h["key"][1]) + 3 * h["key"][2])
    usual = used.levels.get(tuple(hit["kind"]), [0.0])
    own = max(hit["own"], statistics.median(usual))
    if "update" in case.faults[0]["what"]:
        # Against the weight every update is small: what counts is the share of the update that is wrong.
        own = 0.0
    return {"fault": hit["fault"], "own_noise": own, "total_noise": hit["total"]}


def write_cases(folder: Path) -> list[dict[str, Any]]:
    """cases.toml of all models that are there, in the form of testdata/faults, with the fields that the suite adds."""
    rows = [row for file in sorted(folder.glob("*/cases.json")) for row in json.loads(file.read_text())]
    text = "# Written by benches/answers/make.py. `answers`: every [step, op] that is right as the first divergence.\n"
    for row in rows:
        text += "\n[[case]]\n"
        if row["answers"]:
            row = {**row, "step": row["answers"][0][0], "ops": [name for _, name in row["answers"]]}
        for key, value in row.items():
            if key in ("faults", "edit", "trained", "style", "products") or value is None or value == ():
                continue
            if isinstance(value, float) and not math.isfinite(value):
                value = 1e300
            text += f"{key} = {json.dumps(value)}\n"
    (folder / "cases.toml").write_text(text)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--models", default="")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--programs", action="store_true", help="the programs alone, without the models")
    arguments.add_argument("--drawn", default="", help="programs of these seeds alone, such as 1-40; a seed that is new is new to the judge")
    arguments.add_argument("--any", choices=("first", "second", "both"), help="architectures of transformers alone, by halves")
    arguments.add_argument("--small", action="store_true", help=f"a few cases of {', '.join(SMALL)}")
    arguments.add_argument("--data", action="store_true", help="cases for replay: level op, task tensor; `replayed.py` scores them")
    arguments.add_argument(
        "--tools", default="probe,msprobe", help="whose dumps; msprobe's are left out where it is not installed"
    )
    arguments.add_argument("--deal", type=int, default=1, help="another number deals other pairs of the same models")
    arguments.add_argument("--late", action="store_true", help="programs alone: pairs of which one late step was recorded")
    arguments.add_argument("--worker", default="", help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    folder = chosen.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE))
    if chosen.worker:
        work(chosen.worker, folder, chosen.tools.split(","), chosen.small, chosen.data, chosen.deal, chosen.late)
        return
    import models

    every = [name for name, kind in models.kinds().items() if kind.program or not chosen.programs]
    wanted = chosen.models.split(",") if chosen.models else SMALL if chosen.small else every
    if chosen.drawn:
        first, _, last = chosen.drawn.partition("-")
        wanted = [f"drawn-{seed}" for seed in range(int(first), int(last or first) + 1)]
    if chosen.any:
        import any_models

        wanted = any_models.names(chosen.any)
    free = chosen.drawn or chosen.any or chosen.models.startswith("any-")
    unknown = [] if free else [name for name in wanted if name not in models.kinds()]
    if unknown:
        arguments.error(f"no such model: {', '.join(unknown)}; there are {', '.join(models.kinds())}")
    # What the older tool records of an op cannot be level op.
    asked = ["probe"] if chosen.data else chosen.tools.split(",")
    tools = [tool for tool in asked if tool == "probe" or importlib.util.find_spec(tool)]
    if not chosen.small and not chosen.data and "msprobe" not in tools:
        print("msprobe is not installed: its dumps are left out")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    running: dict[subprocess.Popen[bytes], str] = {}
    failed = []
    began, rows = time.monotonic(), []
    while wanted or running:
        while wanted and len(running) < chosen.jobs:
            name = wanted.pop(0)
            command = [
                sys.executable,
                __file__,
                str(folder),
                "--worker",
                name,
                "--tools",
                ",".join(tools),
                "--deal",
                str(chosen.deal),
                *(["--small"] if chosen.small else []),
                *(["--data"] if chosen.data else []),
                *(["--late"] if chosen.late else []),
            ]
            running[subprocess.Popen(command, env=environment, cwd=folder)] = name
        for process in [p for p in running if p.poll() is not None]:
            name = running.pop(process)
            print(
                f"{name}: {'done' if process.returncode == 0 else 'FAILED'} after {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if process.returncode:
                failed.append(name)
            rows = write_cases(folder)
        time.sleep(0.2)
    faults = sum(row["verdict"] == "diverged" for row in rows)
    print(f"{faults} faults, {len(rows) - faults} sound pairs in {folder}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
