"""Where iterations end in scripts of the older tool: at their own marks, or at the optimizer's steps where the marks stand around the loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dumps import Dump, steps
from probe import ApiProfiler, PrecisionDebugger
from test_iterations import Loop, numbers


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    PrecisionDebugger.forget()
    ApiProfiler.forget()


def profiler(chosen: str | None) -> ApiProfiler:
    common: dict[str, Any] = {"dump_mode": "mix", "dump_path": "./dump"}
    if chosen is not None:
        common["dump_iter"] = chosen
    Path("msprobe.json").write_text(json.dumps({"dump": {"common_dump_settings": common}}))
    return ApiProfiler("msprobe.json")


def recorded(root: str = "dump") -> dict[int, list[float]]:
    """Which iterations have calls in each step."""
    PrecisionDebugger.forget()
    ApiProfiler.forget()
    return {step: numbers(Path(root), step) for step in steps(root)}


def test_calls_around_the_loop_leave_iterations_to_the_optimizer() -> None:
    loop, calls = Loop(), profiler("1|3")
    calls.start()
    for number in range(5):
        loop.train(number)
    calls.stop()
    calls.save()
    with torch.no_grad():
        loop.model(torch.full((1, 2), 9.0))
    assert recorded() == {1: [1], 3: [3]}


def test_calls_in_the_loop_lose_nothing_of_any_iteration(said: Callable[[], str]) -> None:
    loop, calls = Loop(), profiler(None)
    for number in range(3):
        calls.start()
        loss = loop.train(number)
        loss + 1
        calls.stop()
        calls.save()
    assert recorded() == {number: [number] for number in range(3)}
    # Calls between the optimizer's step and the mark belong to the iteration, the first one too.
    assert all(Dump("dump", step).all("Tensor.__add__") for step in range(3))
    assert "in part" not in said()


def test_one_start_and_no_step(tmp_path: Path) -> None:
    loop = Loop()
    debugger = PrecisionDebugger(dump_path="dump", level="mix", step=[0, 2])
    debugger.start(loop.model)
    for number in range(4):
        loop.train(number)
    debugger.stop()
    assert recorded() == {0: [0], 2: [2]}


def test_one_start_and_a_step_each_time() -> None:
    loop = Loop()
    debugger = PrecisionDebugger(dump_path="dump", level="mix", step=[0, 2])
    debugger.start(loop.model)
    for number in range(4):
        loop.train(number)
        debugger.step()
    assert recorded() == {0: [0], 2: [2]}


def test_a_mark_of_several_optimizer_steps_takes_precedence(said: Callable[[], str]) -> None:
    loop, calls = Loop(), profiler("1-2")
    for number in range(4):
        calls.start()
        loop.train(number, times=3)
        calls.stop()
        calls.save()
    assert recorded() == {1: [1] * 3, 2: [2] * 3}
    assert "the 3 that were counted by the optimizer's steps were one" in said()


def test_an_evaluation_behind_the_loop_is_no_iteration() -> None:
    loop, calls = Loop(), profiler("1")
    calls.start()
    for number in range(3):
        loop.train(number)
    calls.save()
    loop.model.eval()
    loop.model(torch.full((1, 2), 9.0))
    assert recorded() == {1: [1]}


def test_iterations_can_be_counted_by_the_model() -> None:
    loop = Loop()
    Path("config.json").write_text(json.dumps({"task": "statistics", "dump_path": "dump", "level": "mix", "step": [1], "step_on": "model"}))
    debugger = PrecisionDebugger("config.json")
    debugger.start(loop.model)
    for number in range(3):
        loop.model(torch.full((1, 2), float(number)))
    debugger.stop()
    assert recorded() == {1: [1]}
