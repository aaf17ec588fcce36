"""A watched run keeps the steps that show the awaited event, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import probe
from dumps import Dump, steps


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()


#: The op that makes the first NaN, at each level.
FIRST = {"module": "Module.1.Logarithm.forward.0", "mix": "Tensor.log.0.forward", "api": "Tensor.log.0.forward", "op": "Aten.log.0.forward"}


def watched(folder: Path, wrong: tuple[int, ...], count: int = 5, **settings: Any) -> probe.Capture:
    """Runs a model that hides a mask behind an infinity; in the steps `wrong` it takes the logarithm of -1."""
    model = nn.Sequential(nn.Linear(3, 3), Logarithm())
    capture = probe.Capture(folder, model, step_on="program", **settings)
    for step in range(count):
        capture.start()
        model.zero_grad()
        hidden = model[0](torch.ones(4, 3)).masked_fill(torch.eye(4, 3) > 0, float("-inf"))
        shown = F.softmax(hidden, -1) + torch.full((3,), float("inf")).reciprocal()
        model[1](shown * (-1.0 if step in wrong else 1.0) + 2.0 * (step not in wrong)).sum().backward()
        capture.step()
    return capture


@pytest.mark.parametrize("level", FIRST)
def test_the_first_step_with_a_nan_stays(tmp_path: Path, said: Callable[[], str], level: str) -> None:
    watched(tmp_path / "dump", (2, 3), level=level, task="statistics", keep="non-finite", quiet=True)
    assert steps(tmp_path / "dump") == [2], said()
    # The recording has ended by then: the line is there before it is closed.
    found = f"first NaN or infinity of step 2: {FIRST[level]} output.0: "
    assert f"probe: {found}" in said() and any(note.startswith(found) for note in Dump(tmp_path / "dump", 2).manifest["notes"])
    assert FIRST[level] in Dump(tmp_path / "dump", 2) and any(op.phase == "backward" for op in Dump(tmp_path / "dump", 2).ops)


def test_several_steps_may_stay(tmp_path: Path, said: Callable[[], str]) -> None:
    watched(tmp_path / "two", (0, 2, 4), keep="non-finite", keep_steps=2).close()
    watched(tmp_path / "all", (0, 2, 4), keep="non-finite", keep_steps="all", steps="0-3").close()
    assert steps(tmp_path / "two") == steps(tmp_path / "all") == [0, 2]
    assert said().count("first NaN or infinity of step") == 4


def test_a_sound_run_leaves_nothing(tmp_path: Path, said: Callable[[], str]) -> None:
    watched(tmp_path / "dump", (), keep="non-finite").close()
    assert "nothing was recorded: no op of steps 0-4 made a NaN or an infinity" in said() and steps(tmp_path / "dump") == []
    with probe.capture(tmp_path / "dump", quiet=True):
        torch.ones(2).add(1)


@pytest.mark.parametrize("keep", ["exception", "non-finite"])
def test_the_step_that_an_exception_ends_stays(tmp_path: Path, said: Callable[[], str], keep: str) -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError), probe.capture(tmp_path / "dump", model, keep=keep):
        for step in range(3):
            model(torch.ones(1, 3 + step // 2)).sum().backward()
            optimizer.step()
    assert steps(tmp_path / "dump") == [2]
    assert "the program ended in step 2, in Functional.linear.0.forward: RuntimeError: mat1 and mat2 shapes" in said()


def test_what_is_made_of_infinities_or_nothing_is_no_finding(tmp_path: Path, said: Callable[[], str]) -> None:
    with probe.capture(tmp_path / "dump", level="op", keep="non-finite"):
        x = torch.full((3,), float("-inf"))
        torch.empty(64).copy_(torch.full((64,), float("nan")))
        x[0] = float("nan")
        (x + 1).exp()
    assert "no op of step 0 made" in said()
    with probe.capture(tmp_path / "other", level="op", keep="non-finite"):
        (x[1:] - x[1:]).add(1)
    assert "Aten.sub.0.forward output.0: 2 NaN of 2 elements" in said()


def test_hashes_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(probe.SettingsError, match="task 'hash' records none"):
        probe.Capture(tmp_path / "dump", task="hash", keep="non-finite")


def test_a_script_of_the_older_tool_is_watched(tmp_path: Path, said: Callable[[], str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "nan_check", "dump_path": str(tmp_path / "dump"), "level": "mix", "nan_check": {"overflow_nums": 1}}))
    debugger = probe.PrecisionDebugger(str(config))
    model = Logarithm()
    try:
        for step in range(4):
            debugger.start(model)
            model(torch.full((2,), 1.0 - step))
            debugger.stop()
            debugger.step()
    finally:
        probe.PrecisionDebugger.forget()
    # The logarithm of 0 is an infinity.
    assert steps(tmp_path / "dump") == [1] and "of step 1: Tensor.log.0.forward output.0: 2 Inf of 2 elements" in said()
