"""Scores the scripts of `probe replay -o`: `python scripts.py [--dumps FOLDER] [--simulated FOLDER]`.

`--dumps` is a folder that `benches/answers/make.py --data` made: of faults of its kernels, drawn at random, the call at fault is replayed on a device
on which that kernel is wrong in all its calls, and a script is written. It has to fail there, and to pass on the device without the fault and on the CPU.
`--simulated` is the simulated NPU (`tests/ascend-sim/build.py`): the same, with its own switch for faults, for each operator and each kind.

Every script runs in a process in which probe cannot be imported.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANSWERS = HERE.parent / "answers"
TESTS = HERE.parents[1] / "python" / "tests"
sys.path[:0] = [str(ANSWERS), str(TESTS), str(TESTS / "npu")]

import fork_server  # noqa: E402

#: Bounds of a script: lines, and bytes of the whole folder.
LINES, BYTES = 60, 64 << 10
#: Operators of the simulated NPU, and the first call that uses each: what a NaN made of the inputs of later calls hides it.
OPERATORS = {
    "GeluV2": "Functional.gelu.0.forward",
    "SoftmaxBackward": "Tensor.softmax.1.backward",
    "Embedding": "Functional.embedding.0.forward",
    "LayerNorm": "Functional.layer_norm.0.forward",
    "Addmm": "Functional.linear.0.forward",
    "Matmul": "Tensor.__matmul__.0.forward",
    "Softmax": "Tensor.softmax.0.forward",
    "LogSoftmax": "Functional.cross_entropy.0.forward",
    "GeluBackwardV2": "Functional.gelu.1.backward",
    "LayerNormBackward": "Functional.layer_norm.4.backward",
}
#: Variables that the libraries of the simulated NPU read as they are loaded.
EARLY = ("PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONWARNINGS", "TORCH_CPP_LOG_LEVEL")
KINDS = ("scale", "element", "row", "tail", "nan", "bf16")
#: Runs a script without probe, on a device of `benches/answers` that its first argument describes; `null` is the CPU.
ALONE = """
import json, runpy, sys
sys.modules["probe"] = None
sys.argv = sys.argv[1:]
given = json.loads(sys.argv.pop(0))
if given is None:
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    sys.path[:0] = given.pop("path")
    import faulty
    import device
    with device.computing(faulty.EveryCall(**given)):
        runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass
class Written:
    """A script, and what it did."""

    name: str
    lines: int
    bytes: int
    #: Exit codes where the fault is, and where it is not.
    there: int
    elsewhere: list[int]
    said: str

    @property
    def right(self) -> bool:
        return self.there == 1 and not any(self.elsewhere)

    @property
    def small(self) -> bool:
        return self.lines < LINES and self.bytes < BYTES


def sizes(folder: Path) -> tuple[int, int]:
    return len((folder / "repro.py").read_text().splitlines()), sum(path.stat().st_size for path in folder.iterdir())


def run_alone(script: Path, device: dict[str, Any] | None, *arguments: str, python: str = "", environment: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code of a script and what it printed, in a process of an interpreter that has torch imported, and the end of its errors."""
    given = json.dumps(device and {**device, "path": [str(HERE), str(ANSWERS)]})
    command = [python or fork_server.python(), "-c", ALONE, given, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr[-300:]


def of_dumps(folder: Path, count: int) -> Iterator[Written | str]:
    """Scripts of faults of kernels, or why there is none."""
    import torch

    import device as devices
    import faulty
    from probe.replay import one, script
    from probe.replay.recorded import NotReplayed, Recording
    from programs import split
    from score import visible

    torch.set_num_threads(1)
    cases = [case for file in sorted(folder.glob("*/cases.json")) for case in json.loads(file.read_text())]
    cases = [case for case in cases if case["faults"] and split(case["model"]) == "seen" and visible(case, "own")]
    for case in random.Random(39).sample(cases, min(count, len(cases))):
        kernels: dict[str, Any] = {"style": case["style"], "products": case["products"]}
        wrong = {**kernels, "faults": [fault for fault in case["faults"] if fault["step"] in case["steps"]]}
        (mine,), (theirs,) = (list(Recording(str(folder / case[side])).parts()) for side in ("candidate", "baseline"))
        named = [name for _, name in case["answers"] if name in mine and not name.startswith("Module.")]
        outcome = next((found for found in (one.replay(mine, name, theirs, "cpu", 1) for name in named) if found.guilty), None)
        if outcome is None:
            yield f"{case['name']}: replay blames nobody"
            continue
        with tempfile.TemporaryDirectory() as place:
            written = Path(place, "repro")
            try:
                with devices.computing(faulty.EveryCall(**wrong)):
                    script.write(outcome, written, {})
            except NotReplayed as reason:
                yield f"{case['name']} {outcome.op}: {reason}"
                continue
            there, said = run_alone(written / "repro.py", wrong)
            elsewhere = [run_alone(written / "repro.py", other)[0] for other in (kernels, None)]
            yield Written(f"{case['name']} {outcome.op} ({case['what']})", *sizes(written), there, elsewhere, said)


def of_simulated(folder: Path) -> Iterator[Written | str]:
    """Scripts of faults of the simulated NPU."""
    os.environ["ASCEND_SIM"] = str(folder)
    import simulator

    def environment(**switches: Any) -> dict[str, str]:
        found = simulator.environment(**switches)
        return {**found, "PYTHONPATH": os.pathsep.join(filter(None, [found["PYTHONPATH"], os.environ.get("PYTHONPATH")]))}

    # The libraries of the device take longer to load than everything else.
    python = fork_server.python("torch_npu", variables=tuple((name, environment()[name]) for name in EARLY))

    def probe(*words: object, **switches: Any) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", "probe", *map(str, words)]
        return subprocess.run(command, cwd=place, env=environment(**switches), capture_output=True, text=True, check=False)

    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        train = ["--", python, simulator.HERE / "train.py", "gpt", "--steps", 1, "--device"]
        probe("capture", "--steps", 0, "--task", "tensor", "-o", "cpu", *train, "cpu")
        for kind, (operator, op) in itertools.product(KINDS, OPERATORS.items()):
            # One fault alone: what a fault makes of the inputs of the next may hide that.
            name, fault = f"{operator}_{kind}", f"{operator}:all:{kind}"
            recorded = probe("capture", "--steps", 0, "--task", "tensor", "-o", "npu", *train, "npu:0", fault=fault)
            if recorded.returncode:
                yield f"{name}: {recorded.stderr[-300:]}"
                continue
            more = ["--against", "cpu", "--device", "npu:0", "--times", 1, "--import", "torch_npu", "-o", name]
            done = probe("replay", "npu", "--op", op, *more, fault=fault)
            shutil.rmtree(place / "npu")
            if done.returncode != 1 or not (place / name / "repro.py").exists():
                yield f"{name}: {done.stdout.strip().splitlines()[-2:]} {done.stderr[-300:]}"
                continue
            there, said = run_alone(place / name / "repro.py", None, "npu:0", python=python, environment=environment(fault=fault))
            sound, _ = run_alone(place / name / "repro.py", None, "npu:0", python=python, environment=environment())
            yield Written(f"{name} {op}", *sizes(place / name), there, [sound], said)


def report(title: str, scripts: Iterator[Written | str]) -> bool:
    counts: Counter[str] = Counter()
    lines, kilobytes = [], []
    for each in scripts:
        counts["faults"] += 1
        if isinstance(each, str):
            print(f"no script: {each}", file=sys.stderr)
            continue
        counts.update({"written": 1, "right": each.right, "small": each.small})
        lines.append(each.lines)
        kilobytes.append(each.bytes / 1024)
        if not (each.right and each.small):
            shown = re.sub(r"\s+", " ", each.said)[:400]
            print(f"{each.name}: exits {each.there} with the fault, {each.elsewhere} without; {each.lines} lines, {each.bytes >> 10} KB; {shown}", file=sys.stderr)
    if not lines:
        return False
    kilobytes.sort()
    print(f"{title}: {counts['written']} scripts of {counts['faults']} faults; {counts['right']} fail with the fault and pass without it")
    tenth = kilobytes[min(len(kilobytes) - 1, len(kilobytes) * 9 // 10)]
    print(f"  {counts['small']} are below {LINES} lines and {BYTES >> 10} KB: {min(lines)} to {max(lines)} lines; median {kilobytes[len(lines) // 2]:.0f} KB, nine of ten below {tenth:.0f} KB, largest {kilobytes[-1]:.0f} KB")
    return counts["right"] == counts["written"] and counts["small"] >= 0.9 * counts["written"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dumps", type=Path)
    arguments.add_argument("--count", type=int, default=60, help="faults of the dumps [default: 60]")
    arguments.add_argument("--simulated", type=Path)
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    met = True
    if chosen.dumps:
        met &= report("kernels of benches/answers", of_dumps(chosen.dumps, chosen.count))
    if chosen.simulated:
        met &= report("the simulated NPU", of_simulated(chosen.simulated.resolve()))
    sys.exit(not met)


if __name__ == "__main__":
    main()
