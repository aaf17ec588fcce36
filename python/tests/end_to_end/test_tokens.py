"""`probe compare --tokens`: an engine with a paged cache, that takes prompts in chunks and decodes, against a trainer that pads its batch."""

from __future__ import annotations

import json
import os
import shutil
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


def test_passes_that_were_recorded_as_steps_are_put_together(trainer: tuple[Path, Language, list[Request]], tmp_path: Path) -> None:
    """As msprobe's guide for verl and vLLM has it: a pass is a step, and logs beside the dumps name the requests of each."""
    folder, model, requests = trainer
    shutil.copytree(folder, tmp_path / "trainer")
    ids = [f"{at:032x}" for at in range(len(requests))]
    log = {"source": "update_actor", "rank": 0, "step": 0, "request_ids": ids, "num_requests": len(ids)}
    (tmp_path / "trainer" / "4711").mkdir()
    (tmp_path / "trainer" / "4711" / "update_actor_log.jsonl").write_text(json.dumps(log) + "\n")
    engine = engine_of(model, torch.float32)
    server = Engine(engine, 1024)
    capture = probe.capture(str(tmp_path / "engine"), model=engine, steps="0-99", level="module", task="tensor", quiet=True)
    lines: list[str] = []
    running = ids

    class Served:
        """Ends a step behind each pass, and logs it; the engine appends eight digits to the ids of requests."""

        config, model, parameters = engine.config, engine.model, engine.parameters

        def __call__(self, *args: object) -> torch.Tensor:
            out = engine(*args)
            requests = [{"request_id": f"{name}-{7 * at + 1:08x}", "type": "new", "tokens": 1} for at, name in enumerate(running)]
            lines.append(json.dumps({"source": "dispatch_logger", "pid": 1, "rank": 0, "step": len(lines), "phase": "prefill", "requests": requests}))
            capture.step()
            return out

    server.model = Served()
    with capture:
        forced(server, [Request(request.prompt, request.most) for request in requests], requests)
        # Another request, that the trainer did not train on.
        running = ["f" * 32]
        del server._draw
        server.generate([Request([5, 6, 7], 2)], Sampler(), 0)
    (tmp_path / "engine" / "dispatch_log.jsonl").write_text("\n".join(lines) + "\n")
    code, report = asked(tmp_path / "trainer", tmp_path / "engine", tmp_path / "out")
    fed = sum(len(request.prompt) + len(request.output) - 1 for request in requests)
    assert (code, report["first_divergence"]) == (0, None)
    assert any(f"{fed} tokens are compared" in note and f"{fed} of the candidate" in note for note in notes(report)), notes(report)
    (tmp_path / "engine" / "dispatch_log.jsonl").write_text("".join(line.replace("0" * 24, "1" * 24) + "\n" for line in lines))
    program = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    done = subprocess.run([*program, "compare", tmp_path / "trainer", tmp_path / "engine", "--tokens", "-o", "-"], capture_output=True, text=True)
    assert done.returncode == 2 and "no pass has a request of the other side" in done.stderr, done.stderr


@pytest.mark.parametrize("fault", ["sound", "mlp"])
def test_experts_that_rounding_chooses_are_no_fault(fault: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = Language(Config(layers=2, width=64, inner=64, experts=8)).to(torch.bfloat16).eval()
    requests = [Request([(7 * at + 3 * t) % 200 + 4 for t in range(24)], 6) for at in range(6)]
    Engine(engine_of(model, torch.bfloat16), 1024).generate(requests, Sampler(), 0)
    trainer = recorded(tmp_path / "trainer", model, lambda: scores(model, requests))
    wrong = engine_of(model, torch.bfloat16)
    if fault != "sound":
        plant(wrong, fault, LAYER)
    again = [Request(request.prompt, request.most) for request in requests]
    engine = recorded(tmp_path / "engine", wrong, lambda: forced(Engine(wrong, 1024), again, requests))
    code, report = asked(trainer, engine, tmp_path / "out")
    found = report["first_divergence"]
    assert code == (fault != "sound") and (f".layers.{LAYER}.mlp." in found["op"] if found else fault == "sound"), found


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


class Scaled(torch.nn.Module):
    """Multiplies, and is told places that it does not use, as attention is told those of its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def forward(self, x: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Placed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scaled, self.head = torch.nn.Embedding(50, 16), Scaled(), torch.nn.Linear(16, 50)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.scaled(self.embed(input_ids), cache_position=torch.arange(input_ids.shape[1])))


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_an_argument_with_a_row_for_each_token_on_one_side_alone_is_no_cause(factor: float, tmp_path: Path) -> None:
    torch.manual_seed(4)
    model = Placed().eval()
    ids = torch.randint(0, 50, (3, 9))
    trainer = recorded(tmp_path / "trainer", model, lambda: model(ids))
    model.scaled.factor = factor
    # Of one sequence at a time there are as many places as tokens.
    engine = recorded(tmp_path / "engine", model, lambda: [model(row[None]) for row in ids])
    code, report = asked(trainer, engine, tmp_path / "out")
    found = report["first_divergence"]
    if factor == 1.0:
        assert (code, found) == (0, None)
    else:
        assert (code, found["op"], found["cause"]) == (1, "Module.scaled.Scaled.forward.0", "numerics"), found
