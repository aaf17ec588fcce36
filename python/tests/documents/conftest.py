"""The folder that the blocks of the documents run in: programs, dumps, packs, weights and settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fork_server
import pytest

from .blocks import ROOT
from .rollout_files import prepare as prepare_rollout

MODEL = """
import torch
from torch import nn

def build_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))

"""

#: The user's program of the shell blocks.
TRAIN = MODEL + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
batch = parser.parse_args().batch
model = build_model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(22):
    optimizer.zero_grad()
    loss = model(torch.randn(batch, 4)).square().mean()
    loss.backward()
    optimizer.step()
"""

GENERATE = MODEL + """
model = build_model()
with torch.inference_mode():
    for _ in range(6):
        model(torch.ones(1, 4))
"""

#: Lines before a Python block in the user's script.
PRELUDE = MODEL + """
import probe

def seed_everything(seed):
    torch.manual_seed(seed)

model = build_model()
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
scaler = torch.amp.GradScaler("cpu")
loader = torch.utils.data.DataLoader(torch.ones(44, 4), batch_size=2)

def train(model=model, batch=None):
    for inputs in loader if batch is None else [batch]:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

"""

#: Paths that the blocks write to; they must not exist before.
_WRITTEN = re.compile(r'-o (\S+)|[cC]apture\("([^"]+)"|pack\(model, "([^"]+)"')

_DUMPS = ("gpu_dump", "npu_dump", "gpu_dump_2", "f32_dump", "baseline_dump", "candidate_dump")


def environment(folder: Path) -> dict[str, str]:
    """A shell in which the package is installed, and nothing of the tests is seen."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PROBE_") and key != "COLUMNS"}
    path = os.pathsep.join([str(folder / "bin"), str(Path(fork_server.python()).parent), str(Path(sys.executable).parent), plain["PATH"]])
    return plain | {"PATH": path, "MSPROBE_PATH": str(folder / "msprobe.json"), "OMP_NUM_THREADS": "1"}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything a block may name."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "train.py").write_text(TRAIN)
    (folder / "generate.py").write_text(GENERATE)
    (folder / "probe.toml").write_text("steps = [1]\n")
    (folder / "rules.toml").write_text('[[rule]]\npattern = "Functional.softmax.*"\nrel_l2 = 1e-3\n')
    entries = [{"name": "torch.nn.functional.linear", "api_type": "forward"}]
    dump = {"common_dump_settings": {"dump_mode": "api", "dump_path": "./out", "dump_iter": "1|2"}, "api_list": entries}
    (folder / "msprobe.json").write_text(json.dumps({"dump": dump}))
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for side in ("gpu", "npu"):
        (folder / side).mkdir()
        (folder / side / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
    captured = run(folder, "probe", "capture", "--steps", "0-2", "-o", _DUMPS[0], "--", "python", "train.py")
    assert captured.returncode == 0, captured.stderr
    for name in _DUMPS[1:]:
        shutil.copytree(folder / _DUMPS[0], folder / name)
    packed = run(folder, "probe", "config-check", "--collect", "-o", "gpu.zip", "--", "python", "train.py")
    assert packed.returncode == 0, packed.stderr
    shutil.copy(folder / "gpu.zip", folder / "npu.zip")
    _prepare_gate(folder)
    prepare_rollout(folder)
    (folder / "testdata").symlink_to(ROOT / "testdata")
    return folder


def _prepare_gate(folder: Path) -> None:
    """The folder for recipes for CI: losses, a baseline, a checkout with a base commit, and a launcher of Slurm."""
    (folder / "losses.txt").write_text("".join(f"{step} {8 / (step + 1)}\n" for step in range(10)))
    (folder / "base").mkdir()
    shutil.copy(folder / "train.py", folder / "base" / "train.py")
    (folder / "bin").mkdir()
    (folder / "bin" / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (folder / "bin" / "srun").chmod(0o755)
    for command in (
        "probe capture --level module --steps 0-1 -o first_dump -- python train.py",
        "probe baseline save first_dump -o ci.probe.json --reason first",
        "git init -q .",
        "git add train.py",
        "git -c user.name=me -c user.email=me@localhost commit -q -m first",
    ):
        done = run(folder, *command.split())
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(folder / "first_dump")


@pytest.fixture
def workplace(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A folder for a block: with what it reads, and without what it writes."""

    def place(text: str) -> Path:
        written = {name for names in _WRITTEN.findall(text) for name in names if name}
        for entry in made.iterdir():
            if entry.name not in written and entry.name != "probe-report":
                copy = shutil.copytree if entry.is_dir() and not entry.is_symlink() else shutil.copy
                if entry.is_symlink():
                    (tmp_path / entry.name).symlink_to(entry.readlink())
                else:
                    copy(entry, tmp_path / entry.name)
        return tmp_path

    return place
