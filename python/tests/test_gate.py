"""The gate from Python: the plugin for pytest, `probe.testing`, and what a dump says of its set-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest

pytest.importorskip("torch")

TEST = """
import torch
from torch import nn

FACTOR = {factor}

def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss = FACTOR * model(torch.ones(3, 4) * (step + 1)).square().mean()
        loss.backward()
        optimizer.step()
        yield step, loss

def test_one(probe_gate):
    with probe_gate("one", steps=[0, 1]) as gate:
        for step, loss in train():
            gate.log("loss", step, loss)

def test_two(probe_gate):
    with probe_gate("two", steps=[0]):
        list(train())
"""


def run_tests(folder: Path, *arguments: str, factor: str = "1.0") -> subprocess.CompletedProcess[str]:
    (folder / "test_model.py").write_text(TEST.format(factor=factor), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PROBE_", "PYTEST_"))}
    command = [fork_server.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "test_model.py"]
    return subprocess.run(command, cwd=folder, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=600)


def test_the_plugin_writes_baselines_and_holds_tests_against_them(tmp_path: Path) -> None:
    missing = run_tests(tmp_path)
    assert missing.returncode == 1 and "write it with pytest --probe-update" in missing.stdout
    written = run_tests(tmp_path, "--probe-update")
    assert written.returncode == 0, written.stdout
    assert sorted(path.name for path in (tmp_path / "probe_baselines").iterdir()) == ["one.probe.json", "two.probe.json"]
    assert run_tests(tmp_path).returncode == 0
    failed = run_tests(tmp_path, factor="1.001")
    assert failed.returncode == 1 and "regression" in failed.stdout and "loss" in failed.stdout, failed.stdout
    refused = run_tests(tmp_path, "--probe-update", factor="1.001")
    assert refused.returncode == 1 and "--probe-reason" in refused.stdout
    updated = run_tests(tmp_path, "--probe-update", "--probe-reason", "another factor", factor="1.001")
    assert updated.returncode == 0, updated.stdout
    assert run_tests(tmp_path, factor="1.001").returncode == 0
    history = json.loads((tmp_path / "probe_baselines/one.probe.json").read_text())["provenance"]
    assert [entry["reason"] for entry in history] == ["pytest --probe-update", "another factor"]


def test_tests_run_beside_one_another(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    assert run_tests(tmp_path, "-n", "2", "--probe-update").returncode == 0
    assert run_tests(tmp_path, "-n", "2").returncode == 0
    assert run_tests(tmp_path, "-n", "2", factor="1.001").returncode == 1


def test_runs_that_differ_are_told_with_the_numbers(tmp_path: Path) -> None:
    from probe.testing import assert_runs_agree

    (tmp_path / "a.txt").write_text("0 2.5\n1 2.25\n")
    (tmp_path / "b.txt").write_text("0 2.5\n1 2.5\n")
    assert_runs_agree(tmp_path / "a.txt", tmp_path / "a.txt")
    with pytest.raises(AssertionError, match="2.25 became 2.5"):
        assert_runs_agree(tmp_path / "a.txt", tmp_path / "b.txt")
    with pytest.raises(ValueError, match="none"):
        assert_runs_agree(tmp_path / "a.txt", tmp_path / "none")


def test_a_dump_says_what_it_was_made_with(tmp_path: Path) -> None:
    import torch

    import probe

    with probe.capture(str(tmp_path / "dump"), level="module"):
        torch.nn.Linear(2, 2)(torch.ones(1, 2))
    manifest = json.loads((tmp_path / "dump/manifest.json").read_text())
    environment = manifest["environment"]
    assert environment["flags.deterministic_algorithms"] == "False"
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))


BLOCKS = """
import json, os, sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)
    def forward(self, x):
        y = torch.nn.functional.gelu(self.fc(x))
        return y * {factor}

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(Block(), Block(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with open(os.environ.get("LOSSES", "losses.jsonl"), "w") as log:
    for step in range(2):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(json.dumps(dict(step=step, loss=loss.item())) + "\\n")
"""


def test_a_gate_narrows_down_to_the_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe.testing import command_line

    (tmp_path / "base.py").write_text(BLOCKS.format(factor="1.0"))
    (tmp_path / "head.py").write_text(BLOCKS.format(factor="1.01"))
    monkeypatch.chdir(tmp_path)
    python = fork_server.python()
    code, said = command_line("narrow", "--baseline-cmd", f"{python} base.py", "--candidate-cmd", f"{python} head.py")
    both = ["--baseline-cmd", f"{python} base.py", "--candidate-cmd", f"{python} base.py"]
    same = subprocess.run([sys.executable, "-m", "probe", "narrow", *both, "--format", "json"], capture_output=True, text=True, check=False)
    assert code == 1, said
    assert "__mul__" in said and "modules: " in said and "tensors of 0: " in said, said
    # The factor is another, and the product is right on both sides.
    assert "Tensor.__mul__.0.forward: replayed in float64, both sides are as right as rounding allows" in said, said
    # One document and nothing else: the programs that were run print to standard error, if at all.
    agreed = same.stdout
    document = json.loads(agreed)
    schema = json.loads((Path(__file__).parents[2] / "schemas/narrow.schema.json").read_text())
    assert same.returncode == 0 and document["result"]["verdict"] == "agree", agreed
    assert set(schema["required"]) <= set(document) <= set(schema["properties"]), agreed
    stage = schema["$defs"]["StageEntry"]
    assert document["stages"] and all(set(stage["required"]) <= set(entry) <= set(stage["properties"]) for entry in document["stages"]), agreed


def test_a_failed_gate_runs_both_sides_again_and_names_the_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe.testing import command_line

    for name, factor in [("base", "1.0"), ("head", "(1 + 1e-5)")]:
        (tmp_path / f"{name}.py").write_text(BLOCKS.format(factor=factor))
    monkeypatch.chdir(tmp_path)
    python = fork_server.python()

    def run(name: str, level: str) -> None:
        monkeypatch.setenv("LOSSES", f"{name}.jsonl")
        code, said = command_line("capture", "-q", "--level", level, "--steps", "0", "-o", f"{name}_{level}", "--", python, f"{name}.py")
        assert code == 0, said
        monkeypatch.setenv("LOSSES", "again.jsonl")

    def gated(*arguments: str) -> tuple[int, dict[str, object], str]:
        code, said = command_line("gate", *arguments, "-o", "out", "--narrow", "--candidate-cmd", f"{python} head.py")
        return code, json.loads((tmp_path / "out/gate.json").read_text()), said

    run("base", "mix")
    run("head", "module")
    assert command_line("baseline", "save", "base_mix", "base.jsonl", "-o", "a.probe.json", "--reason", "x", "--sketches")[0] == 0

    # The loss alone is off, by a part in 100,000: modules first, then the ops of the bad one, bit by bit.
    code, report, said = gated("-b", "base.jsonl", "-c", "head.jsonl", "--baseline-cmd", f"{python} base.py")
    assert code == 1 and report["state"] == "regression" and report["moved_by"] == "commit", said
    culprits = report["culprits"]
    assert culprits[0]["name"] == "Tensor.__mul__.0.forward" and culprits[0]["source"].endswith("head.py:12"), said
    assert "Tensor.__mul__.0.forward: replayed in float64, both sides are as right as rounding allows" in report["narrowed"], said
    assert culprits[1]["name"] == "loss" and (tmp_path / "out/narrow/ops_candidate").is_dir()
    assert "__mul__" in (tmp_path / "out/gate.sarif").read_text() and "__mul__" in (tmp_path / "out/junit.xml").read_text()

    # Against the sketches beside the baseline, the base commit is not needed.
    _, report, said = gated("-b", "a.probe.json", "-c", "head_module", "-c", "head.jsonl")
    assert report["state"] == "regression" and report["narrowed"], said

    # The base commit gives the same bits: not this commit moved the loss.
    (tmp_path / "stale.jsonl").write_text((tmp_path / "head.jsonl").read_text().replace('"loss": 0', '"loss": 1'))
    code, report, said = gated("-b", "stale.jsonl", "-c", "head.jsonl", "--baseline-cmd", f"{python} head.py")
    assert code == 1 and report["state"] == "drift" and report["moved_by"] == "environment", said
    assert "bit-equal" in str(report["narrowed"]), said
