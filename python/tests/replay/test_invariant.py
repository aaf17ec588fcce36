"""`probe invariant`: kernels whose rows depend on the batch are named, with what they depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import probe
from probe.replay import command, evaluate

#: Name -> a kernel of doubling, and what its rows depend on.
KERNELS: dict[str, tuple[Any, str | None]] = {
    "sound": (lambda x: x * 2, None),
    "by_size": (lambda x: x * 2 + (1e-7 if len(x) > 2 else 0), "batch size"),
    "by_size_of_four": (lambda x: x * (2 + 1e-6 * (len(x) % 4 == 0)), "batch size"),
    "alone_otherwise": (lambda x: x * 2 if len(x) > 1 else x * 2.000001, "batch size"),
    "by_position": (lambda x: x * 2 + torch.arange(len(x))[:, None] * 1e-6, "position"),
    "first_row": (lambda x: torch.cat([x[:1] * 2.00001, x[1:] * 2]), "position"),
    "last_row": (lambda x: torch.cat([x[:-1] * 2, x[-1:] * 2.00001]), "position"),
    "pairs": (lambda x: x * 2 + (torch.arange(len(x)) % 2)[:, None] * 1e-6, "position"),
    "by_chance": (lambda x: x * 2 + 1e-6 * torch.rand_like(x), "chance"),
    "by_count_of_runs": (lambda x: x * (2 + 1e-6 * next(_RUNS)), "chance"),
    "by_threads": (lambda x: x * (2 + 1e-6 * (torch.get_num_threads() > 1)), "the number of threads"),
    "by_four_threads": (lambda x: x * (2 + 1e-6 * (torch.get_num_threads() == 4)), "the number of threads"),
    "by_neighbour": (lambda x: x * 2 + 1e-7 * x.roll(1, 0), "position"),
}
_RUNS = iter(range(1, 1000))


@pytest.mark.parametrize("name", KERNELS)
def test_what_rows_depend_on_is_named(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, on = KERNELS[name]
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        torch.mul(torch.randn(6, 8, generator=torch.Generator().manual_seed(1)) + 3, 2)
    real = evaluate.here
    # The kernel of the device under test; in float64 the function is what it is.
    monkeypatch.setattr(evaluate, "here", lambda call, device="cpu": {"0": kernel(call.args[0])} if call.base == "mul" else real(call, device))
    code = command.main("invariant", [str(tmp_path / "dump"), "--op", "torch.mul", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert [each["on"] for each in found["dependent"]] == ([] if on is None else [on])
    assert (code, found["calls"]) == (0 if on is None else 1, 1)


def test_a_dependence_is_shown_with_its_step(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        for _ in range(2):
            torch.mul(torch.ones(6, 8), 2)
            probe.step()
    monkeypatch.setattr(evaluate, "here", lambda call, device="cpu": {"0": KERNELS["pairs"][0](call.args[0])})
    assert command.main("invariant", [str(tmp_path / "dump")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 distinct calls on batches, cpu: 2 give a row other bits"
    assert [line.partition(":")[0] for line in said if "row" in line][1:] == [f"  step {step} rank 0  Torch.mul.0.forward" for step in (0, 1)]


def test_functions_that_mix_rows_take_no_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        torch.softmax(torch.randn(4, 4), 0)
        torch.cumsum(torch.randn(4, 4), 0)
    assert command.main("invariant", [str(tmp_path / "dump")]) == 2
    assert "no call can be run row by row" in capsys.readouterr().err
    assert command.main("invariant", [str(tmp_path / "dump"), "--op", "softmax"]) == 2
    assert "holds no op that matches --op softmax; known: Torch.randn.0.forward, Torch.softmax.0.forward, " in capsys.readouterr().err
    assert command.main("invariant", []) == 2
    assert "give a DUMP, or the program to record after --" in capsys.readouterr().err
