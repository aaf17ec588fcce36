"""Steps of optimizers are ops: parameters, gradients and state before, parameters and state after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump

Record = Callable[..., Dump]

LEVELS = ("module", "mix", "api", "op")


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(5, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
@pytest.mark.parametrize("level", LEVELS)
def test_a_step_has_what_it_was_given_and_what_it_made(record: Record, level: str, options: dict[str, bool]) -> None:
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    _train(model, optimizer)
    seen: dict[str, dict[str, torch.Tensor]] = {}

    def note(when: str) -> None:
        state = {f"{k}.{n}": optimizer.state[p][k] for n, p in model.named_parameters() for k in ("exp_avg", "exp_avg_sq")}
        own = {f"parameter.{n}": p for n, p in model.named_parameters()}
        grads = {f"grad.{n}": p.grad for n, p in model.named_parameters()}
        seen[when] = {name: value.detach().clone() for name, value in {**state, **own, **grads}.items()}

    def work() -> None:
        optimizer.zero_grad()
        model(torch.ones(5, 3)).square().sum().backward()
        with torch._C.DisableTorchFunction():
            note("before")
        optimizer.step()

    dump = record(work, model=model, level=level)
    note("after")
    op = dump["Optimizer.AdamW.step.0"]
    tensors = {path: slot for path, slot in op.slots.items() if slot.kind == "tensor"}
    names = [name for name, _ in model.named_parameters()]
    assert names == ["0.weight", "0.bias", "2.weight", "2.bias"]
    expected = {f"parameter.{name}": seen["before"][f"parameter.{name}"] for name in names}
    for kind in ("grad", "exp_avg", "exp_avg_sq"):
        expected |= {f"input.{kind}.{name}": seen["before"][f"{kind}.{name}"] for name in names}
    for kind in ("parameter", "exp_avg", "exp_avg_sq"):
        expected |= {f"output.{kind}.{name}": seen["after"][f"{kind}.{name}"] for name in names}
    assert tensors.keys() == expected.keys()
    for path, slot in tensors.items():
        assert slot.data.equal(expected[path]), path
    values = {path: slot.value for path, slot in op.slots.items() if slot.kind != "tensor"}
    assert values["kwarg.lr"] == "0.1" and values["kwarg.weight_decay"] == "0.01" and values["kwarg.betas.1"] == "0.999"
    assert not {"kwarg.fused", "kwarg.foreach", "kwarg.capturable"} & values.keys(), "an implementation is no argument"
    assert {slot.side for path, slot in tensors.items() if path.startswith("parameter.")} == {"parameter"}
    if level != "module":
        assert tensors["input.grad.0.weight"].identity == dump["Module.0.Linear.parameters_grad.0"]["grad.weight"].identity or level == "api"
    if level == "mix":
        assert tensors["parameter.0.weight"].identity == dump["Module.0.Linear.forward.0"]["parameter.weight"].identity
    assert tensors["output.parameter.0.weight"].identity != tensors["parameter.0.weight"].identity
    assert "optimizer.step()" in op.line


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.AdamW(p, fused=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.optim.Adafactor,
    lambda p: torch.optim.RMSprop(p, centered=True), lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True), torch.optim.Adagrad,
])  # fmt: skip
def test_training_is_not_changed(tmp_path: Path, level: str, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    def run(recorded: bool) -> list[torch.Tensor]:
        model = _model()
        optimizer = make(model.parameters())
        if recorded:
            with probe.capture(tmp_path / "dump", model=model, level=level):
                for _ in range(3):
                    _train(model, optimizer)
        else:
            for _ in range(3):
                _train(model, optimizer)
        state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
        return [*(p.detach().clone() for p in model.parameters()), *state]

    plain = run(False)
    recorded = run(True)
    assert len(plain) == len(recorded) and all(a.equal(b) for a, b in zip(plain, recorded))
    dump = Dump(tmp_path / "dump", 2)
    assert dump.manifest["notes"] == []
    name = f"Optimizer.{type(make(_model().parameters())).__name__}.step.0"
    # The step of the optimizer ends the iteration, and is whole.
    assert dump.names[-1] == name and "output.parameter.2.bias" in dump[name].slots and not dump[name].note


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p), lambda p: torch.optim.LBFGS(p, max_iter=3)])
def test_what_a_closure_does_is_not_done_by_the_optimizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], level: str, make: Callable[[Any], torch.optim.Optimizer]
) -> None:
    """As Lightning calls optimizers, and as some need it."""

    def run(recorded: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        model, given = _model(), []
        optimizer = make(model.parameters())

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(torch.ones(5, 3)).square().sum()
            loss.backward()
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                given.append(model[0].weight.grad.clone())
            return loss

        if recorded:
            with probe.capture(tmp_path / "dump", model=model, level=level, task="tensor"):
                losses = [optimizer.step(closure=closure), optimizer.step(closure)]
        else:
            losses = [optimizer.step(closure), optimizer.step(closure)]
        return [*losses, *(p.detach().clone() for p in model.parameters())], given

    plain, given = run(False)
    recorded, _ = run(True)
    assert all(a.equal(b) for a, b in zip(plain, recorded, strict=True))
    dump = Dump(tmp_path / "dump", 1)
    assert dump.manifest["notes"] == [] and "without a call" not in capfd.readouterr().err
    name = f"Optimizer.{type(make(_model().parameters())).__name__}.step.0"
    passes = [op for op in dump.ops if "Linear" in op.name or "linear" in op.name or "mm" in op.name]
    assert passes and all(not (op.scope or "").startswith("Optimizer.") for op in passes)
    if level != "op":
        # The gradients that the closure computed first in this step count, not those that an earlier step had left.
        assert dump[name]["input.grad.0.weight"].data.equal(given[len(given) // 2])
        assert dump.names[-1] == name and "output.parameter.2.bias" in dump[name].slots and not dump[name].note
    else:
        assert any(op.scope == name for op in dump.ops)


def test_several_groups_and_a_model_that_nobody_knows(record: Record) -> None:
    weight, other, idle = (nn.Parameter(torch.ones(3)) for _ in range(3))
    optimizer = torch.optim.SGD([{"params": [weight, idle]}, {"params": [other], "lr": 0.5}], lr=0.1, momentum=0.9)

    def work() -> None:
        (weight.sum() + other.sum()).backward()
        optimizer.step()

    op = record(work, level="api")["Optimizer.SGD.step.0"]
    assert {"parameter.0.0", "parameter.1.0", "output.parameter.1.0", "output.momentum_buffer.0.0"} <= op.slots.keys()
    assert "parameter.0.1" not in op.slots, "it has no gradient, and is not moved"
    assert (op["kwarg.lr"].value, op["kwarg.1.lr"].value) == ("0.1", "0.5") and "kwarg.1.momentum" not in op.slots


def test_a_step_that_raises_is_filed(record: Record) -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(5, 3)).sum().backward()

    class Broken(torch.optim.SGD):
        @torch.optim.Optimizer.profile_hook_step
        def step(self, closure: Any = None) -> None:
            raise LookupError("theirs")

    broken = Broken(model.parameters(), lr=0.1)

    def work() -> None:
        with pytest.raises(LookupError):
            broken.step()
        model(torch.ones(5, 3)).sum().backward()
        optimizer.step()

    dump = record(work, model=model, level="module")
    assert dump["Optimizer.Broken.step.0"].raised and not dump["Optimizer.SGD.step.0"].raised


def test_it_can_be_left_out(record: Record) -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for settings in ({"exclude": ["Optimizer.*"]}, {"include": ["Functional.linear"]}, {"phases": ["forward"]}):
        dump = record(lambda: _train(model, optimizer), model=model, level="mix", **settings)
        assert dump.names and not [name for name in dump.names if name.startswith("Optimizer.")], settings
