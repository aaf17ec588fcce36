"""`recheck` and `poison`: memory that changes unseen, and memory that is read unwritten, are named with their ops."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import probe
from dumps import Dump
from runs import RUNS, assert_same, train

BOTH = {"recheck": True, "poison": True}


def checked(folder: Path, work: Any, **settings: Any) -> list[str]:
    """Returns what a checked recording of `work` has found."""
    with probe.capture(folder / "dump", **{"level": "mix", "step_on": "program", **BOTH, **settings}):
        work()
    return list(Dump(folder / "dump").manifest["notes"])


@pytest.mark.parametrize(("kind", "level"), [("conv", "mix"), ("transformer", "op"), ("lstm", "module")])
def test_a_sound_training_is_bit_identical_and_nothing_is_found(tmp_path: Path, kind: str, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kind in RUNS
    assert_same(train(kind), train(kind, lambda model: probe.Capture(tmp_path / "dump", model, level=level, **BOTH)))
    assert Dump(tmp_path / "dump").manifest["notes"] == []
    said = capsys.readouterr().err
    assert "filled with NaN: nothing found" in said and " 0 values were held" not in said


@pytest.mark.parametrize("level", ["mix", "op"])
def test_memory_that_changes_between_two_ops_is_named(tmp_path: Path, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        between = F.gelu(torch.randn(4, 8))
        # A kernel that writes beyond its end, or memory that another owner still uses.
        ctypes.memset(between.data_ptr() + 40, 7, 12)
        F.relu(between)
        F.silu(between)

    (line,) = checked(tmp_path, work, level=level)
    reader, writer = ("Functional.relu.0.forward", "Functional.gelu.0.forward") if level == "mix" else ("Aten.relu.0.forward", "Aten.gelu.0.forward")
    assert line == f"{reader} reads 3 of 32 elements of input.0, from [1, 2] on, which have changed since {writer} wrote them, and no op did that"
    said = capsys.readouterr().err
    assert f"probe: {line}" in said and ": 1 fault found" in said


def test_the_writer_of_the_part_is_named(tmp_path: Path) -> None:
    def work() -> None:
        buffer = torch.zeros(2, 8)
        buffer[0].fill_(1)
        buffer[1].copy_(torch.arange(8.0))
        ctypes.memset(buffer[1].data_ptr(), 7, 4)
        buffer[0].exp()
        buffer.t().exp()

    (line,) = checked(tmp_path, work)
    assert line.startswith("Tensor.exp.1.forward reads 1 of 16 elements of input.0, from [0, 1] on, which have changed since Tensor.copy_.0.forward wrote them")


def test_a_write_that_torch_does_not_count_is_named(tmp_path: Path) -> None:
    def work(counted: bool) -> None:
        given = torch.randn(4, 8, requires_grad=True)
        saved = given.exp()
        if not counted:
            saved.data[...].mul_(2)
        saved.sum().backward()

    (line,) = checked(tmp_path, lambda: work(False))
    assert line.startswith("Tensor.exp.0.backward reads 32 of 32 elements of input.1, from [0, 0] on, which Tensor.mul_.0.forward changed after they were saved")
    assert checked(tmp_path, lambda: work(True), overwrite=True) == []


def test_optimizers_that_write_uncounted_are_sound(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def work() -> None:
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(3, 4)).sum().backward()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.data.add_(parameter.grad, alpha=-0.1)

    assert checked(tmp_path, work) == []


class Rows(torch.autograd.Function):
    """A product whose backward writes the first rows of the gradient of the weight."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(given, weight)
        return given @ weight

    @staticmethod
    def backward(ctx: Any, arrived: torch.Tensor) -> Any:
        given, weight = ctx.saved_tensors
        made = torch.empty_like(weight)
        made[:5].copy_((given.t() @ arrived)[:5])
        return arrived @ weight.t(), made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_rows_that_no_kernel_wrote_are_named(tmp_path: Path, dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.randn(8, 8, dtype=dtype))

    def work() -> None:
        Rows.apply(torch.randn(4, 8, dtype=dtype), weight).abs().sum().backward()
        assert weight.grad is not None
        weight.grad.clone().mul(2)

    (line,) = checked(tmp_path, work)
    assert line == (
        "Tensor.mul.0.forward reads 24 of 64 elements of input.0, from [5, 0] on, which nobody wrote: Aten.empty_like in RowsBackward gave out the memory"
    )


def test_unwritten_memory_that_no_result_shows_is_sound(tmp_path: Path) -> None:
    def work() -> None:
        padded = torch.empty(4, 8)
        padded[:, :3] = torch.randn(4, 3)
        torch.where(torch.arange(8) < 3, padded, torch.zeros(())).sum()
        padded[:, :3].exp()
        torch.empty(3).normal_().exp()
        torch.matmul(torch.randn(2, 2), torch.randn(2, 2), out=torch.empty(2, 2)).exp()

    assert checked(tmp_path, work) == []


def test_kernels_of_extensions_are_looked_into(tmp_path: Path) -> None:
    library = torch.library.Library("probe_integrity", "DEF")
    library.define("half_written(Tensor x) -> Tensor")

    def half_written(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(x)
        made[: len(x) // 2] = x[: len(x) // 2] * 2
        return made

    library.impl("half_written", half_written, "CPU")
    (line,) = checked(tmp_path, lambda: torch.ops.probe_integrity.half_written(torch.ones(8)).add(1))
    assert line.startswith("Tensor.add.0.forward reads 4 of 8 elements of input.0, from [4] on, which nobody wrote: Probe_integrity.half_written")


def test_memory_shared_with_numpy_may_change(tmp_path: Path) -> None:
    def work() -> None:
        shared = torch.zeros(4)
        numbers = shared.numpy()
        shared.exp()
        numbers[1] = 3
        shared.exp()

    assert checked(tmp_path, work) == []
