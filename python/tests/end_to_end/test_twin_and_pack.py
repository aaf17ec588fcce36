"""`probe capture --twin --pack`: one command records a run, its noise and its set-up. The run stays the same, and comparisons use both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest
import training

#: A network that solves ill-conditioned equations, which magnify rounding. `train.py SIDE [DECAY]`; a device `rounds` otherwise or has a `fault`.
PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(training.__file__).parent)!r})
import training, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x):
        h = self.first(x)
        kernel = torch.exp(-1e-3 * torch.cdist(h, h).square()) + 1e-4 * torch.eye(len(h))
        return self.last(torch.nn.functional.gelu(torch.linalg.solve(kernel, h)))

torch.manual_seed(0)
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=float(sys.argv[2]) if sys.argv[2:] else 0.01)
inputs = torch.randn(8, 16)
with training.device({{"plain": None, "rounds": "rounding", "fault": "aten::gelu/1"}}[sys.argv[1]]):
    for _ in range(4):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), flush=True)
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def probe(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    binary = os.environ.get("PROBE_BIN")
    return run(folder, *([binary] if binary else [sys.executable, "-m", "probe"]), *arguments)


def capture(folder: Path, output: str, program: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return probe(folder, "capture", "--steps", "0-1", "--level", "api", *options, "-o", output, "--", fork_server.python(), "train.py", *program)


def test_a_run_brings_its_noise(tmp_path: Path) -> None:
    plain = run(tmp_path, fork_server.python(), "train.py", "plain")
    done = capture(tmp_path, "base", ["plain"], "--twin")
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert done.stderr.count("recorded steps 0-1") == 1 and "noise floor raised by" in done.stderr, done.stderr
    moved = json.loads((tmp_path / "base" / "noise" / "manifest.json").read_text())
    assert moved["config"]["perturb"] == 0 and sorted(path.name for path in (tmp_path / "base" / "noise").glob("step*")) == ["step0", "step1"]
    for side in ("rounds", "fault"):
        assert capture(tmp_path, side, [side]).returncode == 0
    # Without its noise, the sound run is accused.
    (tmp_path / "base" / "noise").rename(tmp_path / "away")
    assert probe(tmp_path, "compare", "base", "rounds", "-o", "-").returncode == 1
    (tmp_path / "away").rename(tmp_path / "base" / "noise")
    sound = probe(tmp_path, "compare", "base", "rounds", "-o", "-")
    assert sound.returncode == 0 and "noise floor raised by base/noise" in sound.stdout, sound.stdout
    fault = probe(tmp_path, "compare", "base", "fault", "-q")
    assert fault.returncode == 1 and "Functional.gelu.0.forward output.0" in fault.stdout, fault.stdout


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import torch\ntorch.seed()\nx = torch.nn.Linear(4, 4)(torch.randn(2, 4))\n", "the program does not repeat itself: noise "),
        ("import os, sys, torch\ntorch.nn.Linear(2, 2)(torch.ones(2))\nos.mkdir('once')\n", "the second run ended with exit status: 1: FileExistsError"),
    ],
)
def test_a_program_that_does_not_repeat_itself_has_no_noise(tmp_path: Path, program: str, said: str) -> None:
    (tmp_path / "once.py").write_text(program)
    done = probe(tmp_path, "capture", "--twin", "-o", "dump", "--", fork_server.python(), "once.py")
    assert done.returncode == 0 and f"no noise was recorded (--twin): {said}" in done.stderr, done.stderr
    assert (tmp_path / "dump" / "step0").is_dir() and not (tmp_path / "dump" / "noise").exists()


def test_the_end_of_the_program_is_its_own(tmp_path: Path) -> None:
    for code, ends in (("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)):
        done = probe(tmp_path, "capture", "--twin", "-o", "dump", "--", sys.executable, "-c", f"import os, sys; {code}")
        assert done.returncode == ends, done.stderr
    done = probe(tmp_path, "capture", "--twin", "--task", "hash", "--", sys.executable, "-c", "")
    assert done.returncode == 2 and "--twin: hashes have no size" in done.stderr


def test_a_run_writes_its_pack_and_the_comparison_names_what_differs(tmp_path: Path) -> None:
    plain = run(tmp_path, fork_server.python(), "train.py", "plain")
    assert capture(tmp_path, "without", ["plain"]).returncode == 0
    for output, program in (("gpu", ["plain"]), ("npu", ["plain", "0.1"])):
        done = capture(tmp_path, output, program, "--pack")
        assert done.returncode == 0 and "packed into" in done.stderr, done.stderr
        assert output != "gpu" or done.stdout == plain.stdout
    # The recording is the same too.
    same = probe(tmp_path, "compare", "without", "gpu", "-o", "-")
    assert same.returncode == 0 and " close" not in same.stdout and " only" not in same.stdout, same.stdout
    packs = probe(tmp_path, "compare", "gpu", "npu", "-o", "-")
    text = " ".join(packs.stdout.split())
    assert "first divergence: steps 0, 1, rank 0, Optimizer.AdamW.step.0" in text and "`probe config-check gpu.config.zip npu.config.zip`: optimizer group 0.weight_decay: 0.01 against 0.1" in text, packs.stdout
    (tmp_path / "npu.config.zip").unlink()
    without = " ".join(probe(tmp_path, "compare", "gpu", "npu", "-o", "-").stdout.split())
    assert "record both with `probe capture --pack`" in without
