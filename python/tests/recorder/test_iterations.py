"""Where iterations end, whoever says so: the optimizer, the model, a function of the program, or the program itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump, steps


class Loop:
    """A small training whose iterations can be told apart: iteration i computes with the number i."""

    def __init__(self, optimizers: int = 1) -> None:
        self.model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.0) for _ in range(optimizers)]

    def train(self, number: int, times: int = 1) -> torch.Tensor:
        for _ in range(times):
            loss = self.model(torch.full((1, 2), float(number))).sum()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
        return loss


def numbers(root: Path, step: int) -> list[float]:
    """Which iterations have calls in a step, in order."""
    inputs = [op["input.0"] for op in Dump(root, step).ops if op.name.startswith("Module.0.") and ".forward." in op.name]
    return [slot.min for slot in inputs]


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1, 2, 3], [1, 3], None])
@pytest.mark.parametrize("tail", [lambda loss: None, lambda loss: loss.item(), lambda loss: loss + 1], ids=["", "item", "op"])
def test_a_loop_that_says_step_is_counted_by_it(tmp_path: Path, chosen: Any, tail: Callable[[Any], Any]) -> None:
    loop = Loop()
    with probe.capture(tmp_path / "dump", model=loop.model, steps=chosen, level="mix") as capture:
        for number in range(5):
            tail(loop.train(number))
            capture.step()
    assert steps(tmp_path / "dump") == (chosen or [0, 1, 2, 3, 4])
    for step in steps(tmp_path / "dump"):
        assert numbers(tmp_path / "dump", step) == [step]


def test_the_first_step_counts_however_often_the_optimizer_stepped(tmp_path: Path, said: Callable[[], str]) -> None:
    # As a loop of several epochs over one batch, of which the first iteration was taken for three.
    for name, chosen in (("some", [1, 2]), ("all", None)):
        loop = Loop()
        with probe.capture(tmp_path / name, model=loop.model, steps=chosen, level="mix", quiet=True) as capture:
            for number in range(4):
                loop.train(number, times=3)
                capture.step()
        for step in (1, 2):
            assert numbers(tmp_path / name, step) == [step] * 3
        assert steps(tmp_path / name) == (chosen or [0, 1, 2, 3])
    assert said() == (
        "probe: iteration 0 was recorded in part: its end was counted before step() was called for the first time; "
        "with step_on='program' nothing but step() ends one\n"
    )
    with probe.capture(tmp_path / "program", model=loop.model, steps=[0], level="mix", step_on="program", quiet=True):
        for number in range(2):
            loop.train(number, times=3)
            probe.step()
    assert numbers(tmp_path / "program", 0) == [0] * 3 and said() == ""


def test_several_optimizers_and_a_step_that_is_said(tmp_path: Path, said: Callable[[], str]) -> None:
    loop = Loop(optimizers=2)
    with probe.capture(tmp_path / "dump", model=loop.model, steps=[0, 1], level="mix", quiet=True) as capture:
        for number in range(3):
            loop.train(number)
            capture.step()
    assert [numbers(tmp_path / "dump", step) for step in (0, 1)] == [[0], [1]]
    assert "iteration 0 was recorded in part" in said()


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_optimizer_counts_where_nothing_is_said(tmp_path: Path, accumulated: int) -> None:
    loop = Loop()
    with probe.capture(tmp_path / "dump", model=loop.model, level="mix", quiet=True):
        for number in range(3):
            for _ in range(accumulated - 1):
                loop.model(torch.full((1, 2), float(number))).sum().backward()
            loop.train(number)
    assert steps(tmp_path / "dump") == [0, 1, 2]
    assert [numbers(tmp_path / "dump", step) for step in range(3)] == [[number] * accumulated for number in range(3)]


def test_a_step_without_an_op_is_none(tmp_path: Path) -> None:
    loop = Loop()
    with probe.capture(tmp_path / "dump", model=loop.model, level="mix", quiet=True):
        loss = loop.train(0)
        float(loss), loss.item(), str(loss.shape)
    assert steps(tmp_path / "dump") == [0]


def test_calls_of_the_model_begin_iterations(tmp_path: Path) -> None:
    loop, criterion, transform = Loop(), nn.MSELoss(), nn.Dropout(0.0)
    with probe.capture(tmp_path / "dump", model=loop.model, step_on="model", steps=[0, 2], level="mix", quiet=True), torch.no_grad():
        for number in range(4):
            answer = loop.model(transform(torch.full((1, 2), float(number))))
            criterion(answer, answer)
    assert steps(tmp_path / "dump") == [0, 2]
    for step in (0, 2):
        assert numbers(tmp_path / "dump", step) == [step]
        names = Dump(tmp_path / "dump", step).names
        assert names.count("Functional.mse_loss.0.forward") == 1, "what follows a call belongs to it"


class Speaker(nn.Module):
    """An encoder, called for each sentence, and a decoder for each word, as `generate` of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.decoder(state)

    def generate(self, words: int) -> torch.Tensor:
        state = self.encoder(torch.ones(1, 2))
        for _ in range(words):
            state = self(state).softmax(-1)
        return state


@pytest.mark.parametrize(("step_on", "count"), [("model", 3), ("Speaker", 3), ("decoder", 3), ("encoder", 1), ("optimizer", 1)])
def test_a_word_is_a_step(tmp_path: Path, step_on: str, count: int) -> None:
    model = Speaker()
    with probe.capture(tmp_path / "dump", model=model, step_on=step_on, level="mix", quiet=True), torch.no_grad():
        model.generate(3)
    assert steps(tmp_path / "dump") == list(range(count))
    last = Dump(tmp_path / "dump", count - 1).names
    assert last.count("Module.decoder.Linear.forward.0") == 1


def test_a_capture_without_a_block_counts_where_it_is_asked_to(tmp_path: Path) -> None:
    loop = Loop()
    for name, asked in (("asked", {"step_on": "model"}), ("plain", {})):
        capture = probe.Capture(tmp_path / name, loop.model, level="mix", quiet=True, **asked)
        capture.start()
        for number in range(2):
            loop.train(number)
        capture.close()
    assert (steps(tmp_path / "asked"), steps(tmp_path / "plain")) == ([0, 1], [0])


def test_a_model_in_place_of_another_leads(tmp_path: Path) -> None:
    with probe.capture(tmp_path / "dump", step_on="model", level="mix", quiet=True):
        for _ in range(2):
            model: Any = nn.Linear(2, 2)
            for _ in range(2):
                model(torch.ones(1, 2))
            del model
    assert steps(tmp_path / "dump") == [0, 1, 2, 3]


class Engine:
    """An optimizer that is none of torch's."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(0.5)


def iterate(loop: Loop, number: int) -> None:
    loop.model(torch.full((1, 2), float(number))).sum().backward()
    Engine(loop.model).step()


@pytest.mark.parametrize("step_on", [f"{__name__}.Engine.step", f"{__name__}.iterate"])
def test_a_function_that_returns_ends_an_iteration(tmp_path: Path, step_on: str) -> None:
    before = iterate, Engine.step
    loop = Loop()
    with probe.capture(tmp_path / "dump", model=loop.model, step_on=step_on, steps=[1, 2], level="mix", quiet=True):
        for number in range(4):
            iterate(loop, number)
    assert (iterate, Engine.step) == before
    assert steps(tmp_path / "dump") == [1, 2]
    for step in (1, 2):
        assert numbers(tmp_path / "dump", step) == [step]
        assert [name for name in Dump(tmp_path / "dump", step).names if "mul_" in name], "its ops are in the iteration that it ends"


def test_without_a_capture_step_does_nothing(said: Callable[[], str]) -> None:
    for _ in range(3):
        probe.step()
    assert said() == ""


def test_wrong_guesses_say_what_to_use(tmp_path: Path, said: Callable[[], str]) -> None:
    model = nn.Linear(2, 2)
    with probe.capture(tmp_path / "whole", quiet=False, steps=[0, 3]), torch.no_grad():
        for _ in range(5):
            model(torch.ones(1, 2))
    first, second = said().splitlines()
    assert first.startswith("probe: recorded step 0, rank 0: ")
    assert second.startswith("probe: step 3 was not reached: recording ended after 0 iterations, counted from 0 by the optimizer's steps; no optimizer stepped")
    assert "--step-on model" in second and "probe.step()" in second

    with probe.capture(tmp_path / "name", step_on="Liner", quiet=True):
        model(torch.ones(1, 2)), model(torch.ones(1, 2))
    assert said().strip() == (
        "probe: step_on: 'Liner' is neither a function that was found nor a module that was called; did you mean 'Linear'?"
    )

    parts = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]
    with probe.capture(tmp_path / "parts", quiet=True):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            parts[0].step(), parts[0].step()
    assert said().startswith("probe: the optimizer ended iteration 1 without a call of a module in it; if it steps")


def test_compiled_models_are_counted_and_stay_as_they_are(tmp_path: Path, said: Callable[[], str]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    plain = compiled(torch.ones(1, 2))
    with probe.capture(tmp_path / "dump", step_on="model", level="mix", steps=[1, 2], quiet=True):
        answers = [compiled(torch.ones(1, 2)) for _ in range(4)]
    assert all(answer.equal(plain) for answer in answers)
    assert steps(tmp_path / "dump") == [1, 2]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said()
    with probe.capture(tmp_path / "trained", model=model, quiet=True):
        model(torch.ones(1, 2))
        for _ in range(2):
            compiled(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert steps(tmp_path / "trained") == [0, 1] and "without a call of a module" not in said()
