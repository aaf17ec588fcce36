"""Answers of `probe compare` for a run on the host and one on the device, for two on the device, and for runs with a wrong kernel.

Right answers are read off the record: a fault is put into a run that is otherwise equal to the bit, and the op at fault is the first whose
results differ while all that it read is equal (`benches/answers/expected.py`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import probe
import programs
import wrong
from checks import NotHere, Run, Unwell, run
from programs import Program, Training
from wrong import Fault

ROOT = Path(__file__).resolve().parents[2]

#: Operators under which kernels are put.
OPS = """gelu gelu_backward silu silu_backward relu threshold_backward addmm mm bmm native_layer_norm native_layer_norm_backward rsqrt
mean.dim convolution convolution_backward embedding embedding_dense_backward _log_softmax _log_softmax_backward_data""".split()

#: Faults by model: operator, phase, what, call.
FAULTS: dict[str, list[tuple[str, str, str, int]]] = {
    "mlp": [
        ("gelu", "forward", "scale", 0), ("addmm", "forward", "accumulation", 1), ("native_layer_norm", "forward", "row", 0),
        ("mm", "backward", "tail", 1), ("gelu_backward", "backward", "nan", 0),
    ],
    "resnet": [
        ("convolution", "forward", "scale", 5), ("convolution", "forward", "tail", 9), ("convolution_backward", "backward", "row", 4),
        ("threshold_backward", "backward", "scale", 3), ("addmm", "forward", "nan", 0),
    ],
    "gpt": [
        ("gelu", "forward", "row", 1), ("addmm", "forward", "scale", 2), ("native_layer_norm", "forward", "scale", 2), ("addmm", "forward", "accumulation", 4),
        ("mm", "backward", "scale", 3), ("gelu_backward", "backward", "tail", 0), ("native_layer_norm_backward", "backward", "row", 1),
        ("embedding_dense_backward", "backward", "scale", 0), ("gelu", "forward", "nan", 0),
    ],
    "llama": [
        ("mm", "forward", "scale", 4), ("silu", "forward", "tail", 1), ("rsqrt", "forward", "scale", 2), ("mm", "forward", "accumulation", 8),
        ("mm", "backward", "row", 5), ("silu_backward", "backward", "scale", 0), ("embedding", "forward", "row", 0),
    ],
    "moe": [("mm", "forward", "scale", 2), ("rsqrt", "forward", "row", 1), ("mm", "backward", "tail", 6), ("_log_softmax", "forward", "row", 0)],
}  # fmt: skip

#: How levels and tasks are dealt out.
WAYS = [("mix", "sketch"), ("module", "sketch"), ("op", "sketch"), ("api", "statistics"), ("mix", "tensor"), ("op", "tensor"), ("mix", "statistics")]


def expected() -> Any:
    """The module that reads right answers off the record."""
    spec = importlib.util.spec_from_file_location("expected", ROOT / "benches" / "answers" / "expected.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["expected"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(
    folder: Path, program: Program, device: str, size: programs.Size, level: str, task: str, steps: list[int], fault: Fault | None = None, learning: bool = True
) -> wrong.Below:
    """Trains up to the last of `steps`, which are recorded."""
    kind = device.partition(":")[0]
    with programs.settings(program):
        training = Training(program, device, size)
        training.model.train(learning)
        with wrong.below(fault, OPS, kind) as below:
            capture = probe.Capture(folder, level=level, task=task, steps=steps, quiet=True, step_on="program", stacks=False)
            capture.start(training.model)
            for number in range(max(steps) + 1):
                below.step, below.phase = number, "forward"
                training.optimizer.zero_grad(set_to_none=True)
                half = torch.float16 if program.precision == "scaler" else torch.bfloat16
                with torch.autocast(kind, half, enabled=program.precision == "autocast"):
                    loss = programs.loss_of(training.model, training.batch)
                below.phase = "backward"
                loss.backward()
                below.phase = "optimizer"
                training.optimizer.step()
                capture.step()
            capture.close()
    return below


@contextlib.contextmanager
def report_of(baseline: Path, candidate: Path, *options: str) -> Iterator[Path]:
    """The folder of one comparison's reports."""
    report = candidate.parent / f"{candidate.name}-report"
    command = [sys.executable, "-m", "probe", "compare", "-b", baseline, "-c", candidate, "-o", report, "--format", "json,parquet", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (report / "report.json").exists():
        raise Unwell(f"exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    yield report
    shutil.rmtree(report)


def compared(baseline: Path, candidate: Path, *options: str) -> dict[str, Any]:
    """The report of one comparison."""
    with report_of(baseline, candidate, *options) as report:
        return json.loads((report / "report.json").read_text())


def error_of(baseline: Path, candidate: Path, ops: list[str]) -> float:
    """The largest error of a result of these ops."""
    import pyarrow.parquet

    with report_of(baseline, candidate) as report:
        rows = pyarrow.parquet.read_table(report / "result.parquet", columns=["op", "slot", "rel_l2"]).to_pylist()
    return max((row["rel_l2"] or 0.0 for row in rows if row["op"] in ops and row["slot"].startswith("output")), default=0.0)


def first(told: dict[str, Any]) -> str:
    found = told["first_divergence"]
    return f"step {found['step']} {found['op']} {found['slot']}: {found['cause']}: {found['reason']}" if found else told["verdict"]


#: A fault is to be named from so many times the device's rounding on (docs/judge.md): 8, and 32 where statistics show the least of both.
BEYOND = {"statistics": 32.0}

#: Wrong answers of a process whose dumps are kept.
WRONG = 3


class Pairs:
    """Dumps of one run of the suite, each recorded once."""

    def __init__(self, given: Run) -> None:
        self.given = given
        self.wrong = 0

    @contextlib.contextmanager
    def made(self) -> Iterator[Path]:
        """A folder for the dumps of one check. Those of the first wrong answers go into the output."""
        folder = self.given.folder / "pair"
        folder.mkdir()
        try:
            yield folder
        except Unwell:
            self.wrong += 1
            if self.wrong <= WRONG:
                place = self.given.output / "wrong" / f"{self.given.checks.count - 1:03}"
                for side in ("baseline", "candidate", "whole", "part"):
                    if (folder / side).is_dir():
                        shutil.move(folder / side, place / side)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def sound(self, program: Program, level: str, task: str, step: int, other: Program | None = None) -> dict[str, Any]:
        """Host against device; with `other`, two programs on the device."""
        with self.made() as folder:
            recorded(folder / "baseline", program, self.given.device if other else "cpu", self.given.size, level, task, [step])
            recorded(folder / "candidate", other or program, self.given.device, self.given.size, level, task, [step])
            told = compared(folder / "baseline", folder / "candidate")
            if told["verdict"] != "agree":
                raise Unwell(f"a sound pair: {first(told)}")
        return told

    def faulty(self, program: Program, fault: Fault, level: str, task: str) -> str:
        answer = expected().answer
        with self.made() as folder:
            base, marked = folder / "plain", folder / "marked"
            for place, what in ((base, None), (marked, fault)):
                below = recorded(place, program, self.given.device, self.given.size, level, "hash", [0], what)
            if not below.hits:
                raise NotHere(f"no such call: {sorted({key[0] for key in below.counts})}")
            right = answer(base, marked, [0], {"step": 0, "phase": fault.phase}, level)
            recorded(folder / "baseline", program, "cpu", self.given.size, level, task, [0])
            recorded(folder / "candidate", program, self.given.device, self.given.size, level, task, [0], fault)
            told = compared(folder / "baseline", folder / "candidate")
            found = told["first_divergence"]
            if right.how == "hidden":
                raise NotHere("no recorded value differs")
            if found is None or [found["step"], found["op"]] not in [list(name) for name in right.names]:
                ops = [name for _, name in right.names]
                recorded(folder / "sound", program, self.given.device, self.given.size, level, task, [0])
                effect = error_of(folder / "sound", folder / "candidate", ops)
                for name, device in (("host", "cpu"), ("device", self.given.device)):
                    recorded(folder / name, program, device, self.given.size, level, "sketch", [0])
                noise = error_of(folder / "host", folder / "device", ops)
                if effect < BEYOND.get(task, 8.0) * noise:
                    raise NotHere(f"{task} show {effect:.1e} of the fault, where the device's rounding is {noise:.1e}")
                raise Unwell(f"{first(told)}; right: {', '.join(ops)}; effect {effect:.1e}, rounding {noise:.1e}")
        return f"{found['op']}: {found['cause']}"


def tf32(pairs: Pairs, program: Program, level: str, task: str) -> str:
    """Products of the device with inputs of 10 bits: one statement, no divergence."""
    if pairs.given.kind != "cuda":
        raise NotHere("TF32 is of CUDA")
    told = pairs.sound(program, level, task, 0)
    notes = [note for note in told["notes"] if "TF32" in note]
    if len(notes) != 1:
        raise Unwell(f"{len(notes)} notes of TF32: {told['notes']}")
    return notes[0][:160]


def rows_of_a_batch(given: Run, pairs: Pairs, precision: str) -> str:
    """A batch on the device against its first quarter on the device, which takes other kernels."""
    size = given.size
    whole = programs.Size(**{**size.__dict__, "batch": 4 * size.batch})
    with pairs.made() as folder:
        for name, rows in (("whole", 4 * size.batch), ("part", size.batch)):
            with programs.settings(Program("gpt", precision)):
                training = Training(Program("gpt", precision), given.device, whole)
                words, wanted = (part[:rows] for part in training.batch)
                capture = probe.Capture(folder / name, level="mix", task="tensor", steps=[0], quiet=True, step_on="program")
                capture.start(training.model)
                programs.loss_of(training.model, (words, wanted)).backward()
                capture.close()
        told = compared(folder / "whole", folder / "part", "--rows")
        if told["verdict"] != "agree":
            raise Unwell(f"a sound pair: {first(told)}")
    return f"{4 * size.batch} rows against {size.batch} of them"


#: Trainings whose dumps are kept as test data, and what is wrong in the faulty ones.
KEPT = {
    "gpt": (Program("gpt"), Fault("gelu", "forward", "row", call=1, by=1.5)),
    "mlp": (Program("mlp", optimizer="sgd"), Fault("mm", "backward", "scale", call=1, by=1.02)),
}
KEPT_SIZE = programs.Size(width=32, heads=4, layers=2, batch=2, length=16, words=64, side=16)


def keep(folder: Path, name: str, device: str, fault: Fault | None = None) -> None:
    """Records the first step of a training of [`KEPT`]."""
    recorded(folder, KEPT[name][0], device, KEPT_SIZE, "mix", "sketch", [0], fault)


def kept(given: Run) -> str:
    """Dumps of the host, the device, and the device with a wrong kernel: small ones, to be kept as test data."""
    place = given.folder / "gpu"
    for name, (_, fault) in KEPT.items():
        for folder, device, what in (("host", "cpu", None), ("good", given.device, None), ("faulty", given.device, fault)):
            keep(place / name / folder, name, device, what)
        told = compared(place / name / "host", place / name / "good")
        if told["verdict"] != "agree":
            raise Unwell(f"{name}: {first(told)}")
        told = compared(place / name / "host", place / name / "faulty")
        if told["first_divergence"] is None:
            raise Unwell(f"{name}: {fault.name} is not seen")
    archive = shutil.make_archive(str(given.output / "gpu"), "gztar", place)
    return f"{Path(archive).name}, {Path(archive).stat().st_size >> 10} KiB"


def main(given: Run) -> None:
    pairs = Pairs(given)
    check = given.checks.check
    models = ["mlp", "gpt"] if given.reduced else ["mlp", "resnet", "gpt", "llama", "moe"]
    check("dumps to keep", lambda: kept(given))
    turn = 0
    for model in models:
        # Not in autocast: its lists of functions are not the same on a host and on a GPU.
        for precision in ("float32", "bfloat16"):
            for step in (0, 3):
                for _ in range(1 if given.reduced else 4):
                    level, task = WAYS[turn % len(WAYS)]
                    turn += 1
                    program = Program(model, precision, "sgd" if model == "resnet" else "adamw")
                    name = f"host against device: {program.name}, step {step}, {level}, {task}"
                    check(name, lambda p=program, l=level, t=task, s=step: pairs.sound(p, l, t, s) and "agree")
    for model in models:
        for level, task in WAYS[:3]:
            check(f"TF32 is said once: {model}, {level}, {task}", lambda p=Program(model, "tf32"), l=level, t=task: tf32(pairs, p, l, t))
    for precision in ("float32", "bfloat16"):
        check(f"rows of a batch: {precision}", lambda p=precision: rows_of_a_batch(given, pairs, p))
    if given.kind == "cuda":
        for one, other, precision in (("flash", "math", "bfloat16"), ("efficient", "math", "float32"), ("flash", "efficient", "bfloat16")):
            for level, task in WAYS[:3]:
                a, b = Program("gpt", precision, attention=one), Program("gpt", precision, attention=other)
                check(
                    f"{one} against {other} attention: {precision}, {level}, {task}",
                    lambda a=a, b=b, l=level, t=task: pairs.sound(a, l, t, 0, b) and "agree",
                )
    turn = 0
    for model in models:
        for op, phase, what, call in FAULTS[model]:
            for precision in ("float32",) if what == "accumulation" or given.reduced else ("float32", "bfloat16"):
                level, task = WAYS[turn % len(WAYS)]
                turn += 1
                by = {"scale": 1.01, "row": 1.5} if precision == "float32" else {"scale": 1.2, "row": 2.0}
                fault = Fault(op, phase, what, call=call, by=by.get(what, 1.0))
                program = Program(model, precision, "sgd" if model == "resnet" else "adamw")
                check(
                    f"{program.name}: {fault.name}, {level}, {task}",
                    lambda p=program, f=fault, l=level, t=task: pairs.faulty(p, f, l, t),
                )


if __name__ == "__main__":
    run("answers", main)
