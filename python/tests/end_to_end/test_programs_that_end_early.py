"""A step that the program ended inside of keeps what was recorded, says how it ended, and is not taken for a whole one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server
import pytest
import training

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recorder"))

from dumps import Dump  # noqa: E402

#: Trains for three steps; what the second argument says happens in the second one, before the last layer.
SCRIPT = """
import os, signal, sys, time
import torch, training

from torch.utils._python_dispatch import TorchDispatchMode

class Full(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name == "aten::addmm":
            raise MemoryError("the device is full")
        return func(*args, **(kwargs or {}))

model, step = training.make("transformer")
calls = [0]

def head(module, args):
    calls[0] += 1
    if calls[0] == 2:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        exec(sys.argv[1])

model.head.register_forward_pre_hook(head)
for _ in range(3):
    step()
"""


def capture(tmp_path: Path, name: str, end: str, level: str = "mix", interpreter: str | None = None) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "probe", "capture", "--level", level, "-o", str(tmp_path / name), "--",
         interpreter or fork_server.python(), str(script), end],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(training.__file__).parent)},
    )  # fmt: skip


def compare(tmp_path: Path, baseline: str, candidate: str) -> tuple[int, dict[str, Any]]:
    report = tmp_path / f"report-{baseline}-{candidate}"
    done = subprocess.run(
        [sys.executable, "-m", "probe", "compare", "-b", tmp_path / baseline, "-c", tmp_path / candidate,
         "-o", report, "--format", "json", "-q"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads((report / "report.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert capture(folder, "dump", "pass").returncode == 0
    return folder / "dump"


RAISE = {
    "an exception of the program's own": ("raise LookupError('no\\nsuch batch')", "in Module.head.Linear.forward.0: LookupError: no"),
    "an op that fails": ("Full().__enter__()", "in Functional.linear.12.forward: MemoryError: the device is full"),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", "after Module.layers.2.Block.forward.0: KeyboardInterrupt"),
}  # fmt: skip


@pytest.mark.parametrize("end", RAISE)
def test_an_exception_marks_the_step(tmp_path: Path, whole: Path, end: str) -> None:
    action, said = RAISE[end]
    # A Ctrl-C ends an interpreter in a way of its own.
    done = capture(tmp_path, "cut", action, interpreter=sys.executable if end == "Ctrl-C" else None)
    assert done.returncode not in (0, 2), done
    assert not (tmp_path / "cut/step0/rank0/stopped.txt").exists()
    reason = (tmp_path / "cut/step1/rank0/stopped.txt").read_text()
    assert reason.startswith(f"the program ended {said}"), reason
    names = Dump(tmp_path / "cut", 1).names
    assert "Functional.linear.11.forward" in names and "Functional.cross_entropy.0.forward" not in names
    (tmp_path / "whole").symlink_to(whole)
    for pair in (("whole", "cut"), ("cut", "whole")):
        code, report = compare(tmp_path, *pair)
        assert (code, report["verdict"]) == (3, "incomplete")
        assert report["first_divergence"] is None, report["first_divergence"]
        assert any(said in entry["reason"] for entry in report["incomplete"]), report["incomplete"]


def test_an_exception_that_the_program_survives_is_none(tmp_path: Path) -> None:
    action = (
        "try:\n    torch.nn.functional.layer_norm(args[0], (5,))\nexcept RuntimeError:\n    pass\n"
        "sys.last_value = ValueError('of an earlier cell')"
    )
    done = capture(tmp_path, "dump", action)
    assert done.returncode == 0 and not list((tmp_path / "dump").rglob("stopped.txt"))


KILLS = {
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "term": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "abort": ("os.abort()", -signal.SIGABRT),
    "segfault": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("end", KILLS)
def test_a_kill_loses_next_to_nothing(tmp_path: Path, whole: Path, end: str, waits: bool) -> None:
    action, status = KILLS[end]
    interpreter = sys.executable if end == "kill" else None
    done = capture(tmp_path, "cut", f"{'time.sleep(2); ' if waits else ''}{action}", interpreter=interpreter)
    assert done.returncode == status, done
    part = Dump(tmp_path / "cut", 1, journal=True).names
    all_of_it = Dump(whole, 1).names
    assert part == all_of_it[: len(part)]
    # The last op before it.
    come_to = all_of_it.index("Module.layers.2.Block.forward.0") + 1
    assert len(part) >= come_to if waits else len(part) > come_to - 32, (len(part), come_to)
    (tmp_path / "whole").symlink_to(whole)
    code, report = compare(tmp_path, "whole", "cut")
    assert (code, report["first_divergence"]) == (3, None), report["first_divergence"]
    assert any("step1/rank0: incomplete" in entry["reason"] for entry in report["incomplete"])
    assert any("never reached" in note for note in report["notes"]), report["notes"]
