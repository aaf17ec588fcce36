"""`probe narrow --inject`: a fault behind another, and much smaller, is found in three runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fork_server

COMMAND = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]

#: Four layers on a device whose kernels are wrong in the calls that the arguments name: `gelu 1 0.01`.
PROGRAM = """
import sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

class Wrong(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        words = sys.argv[1:]
        self.faults = {(op, int(call)): float(size) for op, call, size in zip(words[::3], words[1::3], words[2::3])}
        self.calls = {}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        call = self.calls[name] = self.calls.get(name, -1) + 1
        if (name, call) in self.faults:
            result.mul_(1 + self.faults[name, call] * torch.linspace(-1, 1, result.numel()).reshape(result.shape))
        return result

torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
model = nn.Sequential(*(nn.Sequential(layer, nn.GELU(), nn.Softmax(-1), nn.LayerNorm(16)) for layer in layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Wrong():
    F.mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 16)).backward()
    optimizer.step()
"""


def test_both_faults_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = f"{fork_server.python()} train.py"
    options = ["--baseline-cmd", command, "--candidate-cmd", f"{command} gelu 0 0.1 _softmax 2 0.003"]
    done = subprocess.run([*COMMAND, "narrow", "--inject", *options, "-o", "dumps"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    said = done.stdout.splitlines()
    assert "2 faults on the baseline's values: Functional.gelu.0.forward; Functional.softmax.2.forward" in said, done.stdout
    assert said[-1].startswith("with their results replaced, "), said
