"""`probe narrow --inject`: a fault behind another, and much smaller, is found in three runs, at the level that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest
from faulty_device import PROGRAM

COMMAND = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]


@pytest.mark.parametrize(("level", "named"), [((), "Functional.gelu.0.forward; Functional.softmax.2.forward"), (("--level", "op"), "Aten.gelu.0.forward; Aten._softmax.2.forward")])
def test_both_faults_are_named(tmp_path: Path, level: tuple[str, ...], named: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = f"{fork_server.python()} train.py"
    options = ["--baseline-cmd", command, "--candidate-cmd", f"{command} gelu 0 0.1 _softmax 2 0.003"]
    done = subprocess.run([*COMMAND, "narrow", "--inject", *level, *options, "-o", "dumps"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    said = done.stdout.splitlines()
    assert f"2 faults on the baseline's values: {named}" in said, done.stdout
    assert said[-1].startswith("with their results replaced, "), said
    assert any(line.startswith("next       probe replay dumps/") for line in said), said


def test_dumps_that_are_removed_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = f"{fork_server.python()} train.py"
    options = ["--baseline-cmd", command, "--candidate-cmd", f"{command} gelu 0 0.1"]
    done = subprocess.run([*COMMAND, "narrow", "--inject", *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "next       the same with -o DIR keeps the dumps, for probe replay" in done.stdout.splitlines(), done.stdout


def test_a_program_without_modules_is_told_to_choose_later_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nw = torch.ones(4, requires_grad=True)\nsgd = torch.optim.SGD([w], lr=0.1)\nfor _ in range(2):\n    w.square().sum().backward()\n    sgd.step()\n"
    )
    command = f"{fork_server.python()} train.py"
    asked = [*COMMAND, "narrow", "--inject", "--baseline-cmd", command, "--candidate-cmd", command, "-q"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "left no dump of step 0: probe: nothing was recorded: " in done.stderr, done.stderr
    assert "choose later steps" in done.stderr
    done = subprocess.run([*asked, "--steps", "1"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
