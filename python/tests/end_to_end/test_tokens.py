"""`probe compare --tokens`: an engine with a paged cache, that takes prompts in chunks and decodes, against a trainer that pads its batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import probe

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches" / "rollout"))
from activations import forced, plant  # noqa: E402
from engine import Engine, Request, Sampler  # noqa: E402
from models import Config, Language, engine_of  # noqa: E402
from trainer import scores  # noqa: E402

LAYER = 1


def recorded(folder: Path, model: torch.nn.Module, run: object) -> Path:
    with probe.capture(str(folder), model=model, steps=[0], level="module", task="tensor", quiet=True):
        run()
    return folder


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Language, list[Request]]:
    torch.manual_seed(3)
    model = Language(Config(layers=2, width=64, inner=96)).eval()
    # Two prompts are equal, and two begin alike.
    prompts = [list(range(10, 40)), [7, 8, 9], [7, 8, 9], list(range(10, 24))]
    requests = [Request(prompt, 8) for prompt in prompts]
    Engine(engine_of(model, torch.float32), 1024).generate(requests, Sampler(), 0)
    lengths = [len(request.prompt) + len(request.output) for request in requests]
    left = [max(lengths) - length for length in lengths]
    folder = recorded(tmp_path_factory.mktemp("trainer") / "dump", model, lambda: scores(model, requests, left=left))
    return folder, model, requests


def asked(trainer: Path, engine: Path, out: Path) -> tuple[int, dict]:
    program = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    command = [*program, "compare", "-b", trainer, "-c", engine, "--tokens", "-o", out, "--format", "json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads((out / "report.json").read_text())


@pytest.mark.parametrize("fault", ["sound", "k-heads", "mlp", "cache"])
def test_the_module_is_named(fault: str, trainer: tuple[Path, Language, list[Request]], tmp_path: Path) -> None:
    folder, model, requests = trainer
    wrong = engine_of(model, torch.float32)
    expected = plant(wrong, fault, LAYER) if fault != "sound" else ()
    server = Engine(wrong, 1024)
    again = [Request(request.prompt, request.most) for request in requests]
    engine = recorded(tmp_path / "engine", wrong, lambda: forced(server, again, requests))
    code, report = asked(folder, engine, tmp_path / "out")
    found = report["first_divergence"]
    if not expected:
        assert (code, found) == (0, None)
        # All that the engine was fed: everything but the last token of each response.
        fed = sum(len(request.prompt) + len(request.output) - 1 for request in requests)
        assert any(f"{fed} tokens are compared" in note for note in notes(report)), notes(report)
    else:
        assert code == 1
        assert any(f".layers.{LAYER}.{module}." in found["op"] for module in expected), found["op"]


def notes(report: dict) -> list[str]:
    return [json.dumps(note) for note in report["notes"]]


def test_sides_that_share_no_token_are_refused(trainer: tuple[Path, Language, list[Request]], tmp_path: Path) -> None:
    folder, model, _ = trainer
    other = [Request([200, 201, 202], 2)]
    server = Engine(engine_of(model, torch.float32), 256)
    engine = recorded(tmp_path / "engine", server.model, lambda: server.generate(other, Sampler(), 0))
    program = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    done = subprocess.run([*program, "compare", folder, engine, "--tokens", "-o", "-"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the two sides share no token" in done.stderr and "record the same sequences" in done.stderr, done.stderr
