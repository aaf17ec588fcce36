"""`perturb`: weights and inputs are moved by one rounding, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump


def run(folder: Path, name: str, model: nn.Module, *args: Any, **settings: Any) -> Dump:
    """Records a call of a model."""
    with probe.capture(folder / name, **{"task": "tensor", "step_on": "program", **settings}):
        model(*args)
    return Dump(folder / name)


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative l2 error."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [(torch.float64, 2**-53), (torch.float32, 2**-24), (torch.bfloat16, 2**-9), (torch.float16, 2**-12)],
)
def test_weights_and_inputs_are_moved_by_one_rounding(tmp_path: Path, dtype: torch.dtype, rounding: float) -> None:
    # Of 512 numbers, one draw in forty has less than 45 % that move.
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to(dtype)
    before, given = model.weight.detach().clone(), torch.randn(8, 64, dtype=dtype)
    kept = given.clone()
    op = run(tmp_path, "dump", model, given, perturb=True)["Functional.linear.0.forward"]
    assert torch.equal(given, kept), "the program's own tensor was changed"
    assert torch.equal(op["input.1"].data, model.weight)
    for found, expected in ((op["input.1"].data, before), (op["input.0"].data, given)):
        # Half of the numbers move by a unit, which is between one and two roundings relative to a number.
        assert 0.3 * rounding < off(found, expected) < 2.9 * rounding
        assert 0.45 < float((found != expected).float().mean()) < 0.55


def test_under_autocast_the_rounding_is_that_of_its_type(tmp_path: Path) -> None:
    model = nn.Linear(64, 64)
    before = model.weight.detach().clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(tmp_path, "dump", model, torch.randn(8, 64), perturb=True)
    assert 2**-10 < off(model.weight.detach(), before) < 2**-7


def test_zeros_and_what_is_not_finite_stay(tmp_path: Path) -> None:
    model = nn.Linear(8, 2, bias=False)
    with torch.no_grad():
        model.weight[0] = 0.0
        model.weight[1] = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 3.4028234e38, -3.4028234e38, 1e-45, -1e-45])
    before = model.weight.detach().clone()
    for seed in range(8):
        run(tmp_path, f"dump{seed}", model, torch.zeros(1, 8), perturb=seed)
        same = (model.weight == before) | (model.weight.isnan() & before.isnan())
        assert same[0].all() and same[1, :4].all()
        assert model.weight[1, 4:].isfinite().all()
        assert torch.equal(model.weight.signbit(), before.signbit())


def test_weights_are_moved_once_and_inputs_at_each_call(tmp_path: Path) -> None:
    model = nn.Linear(64, 64)
    with probe.capture(tmp_path / "dump", task="tensor", step_on="program", perturb=True):
        model(torch.ones(4, 64))
        moved = model.weight.detach().clone()
        model(torch.ones(4, 64))
    assert torch.equal(model.weight, moved)
    dump = Dump(tmp_path / "dump")
    first, second = (dump[f"Functional.linear.{call}.forward"]["input.0"].data for call in (0, 1))
    assert not torch.equal(first, torch.ones(4, 64)) and not torch.equal(first, second)


def test_arguments_by_name_and_in_lists_are_moved_and_graphs_left_alone(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, *, more: list[torch.Tensor], words: torch.Tensor) -> torch.Tensor:
            return x + more[0] + words

    leaf = torch.ones(64, requires_grad=True)
    more, words = [torch.ones(64)], torch.ones(64, dtype=torch.int64)
    with probe.capture(tmp_path / "dump", task="tensor", perturb=True):
        Model()(leaf * 2, more=more, words=words).sum().backward()
    dump = Dump(tmp_path / "dump")
    add = dump["Tensor.__add__.0.forward"]
    assert torch.equal(add["input.0"].data, torch.full((64,), 2.0))
    assert not torch.equal(add["input.1"].data, torch.ones(64))
    assert torch.equal(more[0], torch.ones(64)) and torch.equal(words, torch.ones(64, dtype=torch.int64))
    assert leaf.grad is not None


def test_one_seed_is_one_run_and_the_programs_random_numbers_are_its_own(tmp_path: Path) -> None:
    weights = []
    for number, seed in enumerate((3, 3, 4, None)):
        torch.manual_seed(0)
        model = nn.Linear(16, 16)
        run(tmp_path, f"dump{number}", model, torch.ones(2, 16), perturb=seed)
        weights.append((model.weight.detach(), torch.rand(3)))
    (one, drawn), (again, _), (other, _), (plain, after) = weights
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert not torch.equal(one, plain)
    assert torch.equal(drawn, after)


@pytest.mark.parametrize("level", ["module", "api", "op"])
def test_every_level_perturbs_and_records_none_of_it(tmp_path: Path, level: str) -> None:
    model = nn.Linear(16, 16)
    plain = run(tmp_path, "plain", model, torch.ones(2, 16), level=level)
    before = model.weight.detach().clone()
    perturbed = run(tmp_path, "perturbed", model, torch.ones(2, 16), level=level, perturb=True)
    assert not torch.equal(model.weight, before)
    assert [op.name for op in perturbed.ops] == [op.name for op in plain.ops]


def test_the_manifest_and_the_end_line_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = run(tmp_path, "dump", nn.Linear(4, 4), torch.ones(2, 4), perturb=5, quiet=True)
    assert dump.manifest["config"]["perturb"] == 5
    (note,) = dump.manifest["notes"]
    assert note.startswith("dump was recorded with --perturb 5: its weights and inputs were moved by one rounding")
    said = capsys.readouterr().err
    assert "this was not an ordinary run: --perturb 5 moved 2 weights and 1 input by one rounding" in said
    assert run(tmp_path, "plain", nn.Linear(4, 4), torch.ones(2, 4)).manifest["notes"] == []
