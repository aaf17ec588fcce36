"""Products of inputs of ten bits (TF32, HF32) where no recorded op shows what they pass on: between modules, and between steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import probe


class TensorFloat(TorchDispatchMode):
    """A device that rounds the inputs of its products to ten bits."""

    PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::convolution_backward")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in self.PRODUCTS:
            args = [self.rounded(value) if isinstance(value, torch.Tensor) else value for value in args]
        return func(*args, **(kwargs or {}))

    @staticmethod
    def rounded(value: torch.Tensor) -> torch.Tensor:
        # A device rounds without telling anyone.
        with torch._C.DisableTorchFunction():
            return ((value.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Codes(nn.Module):
    """Rows are drawn to the nearest entry of a codebook, which follows the mean of the rows drawn to it."""

    def __init__(self, turns: bool) -> None:
        super().__init__()
        self.turns = turns
        self.down, self.up = nn.Linear(24, 16), nn.Linear(16, 24)
        self.register_buffer("entries", torch.randn(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = F.normalize(self.entries, dim=1) if self.turns else self.entries
        low = self.down(x)
        chosen = F.one_hot((low @ near.t()).argmax(1), 8).float()
        self.sums = (chosen.t() @ low).detach()
        return F.mse_loss(self.up(low + (chosen @ self.entries - low).detach()), x)


def codes(output: Path, keep: float = 0.5, turns: bool = True, step_on: str = "program") -> None:
    torch.manual_seed(2)
    model, x = Codes(turns), torch.randn(48, 24)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with probe.capture(output, model=model, steps=[0, 1, 2], level="mix", task="sketch", step_on=step_on):
        for step in range(3):
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            with torch.no_grad():
                model.entries.mul_(keep if step == 1 else 0.5).add_(model.sums, alpha=0.1)
            probe.step()


def test_what_a_step_passes_to_the_next_outside_of_its_optimizer(tmp_path, compare):
    codes(tmp_path / "gpu")
    with TensorFloat():
        codes(tmp_path / "npu")
        codes(tmp_path / "bad", keep=0.4)
    code, report = compare(tmp_path / "gpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]
    code, report = compare(tmp_path / "gpu", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["op"], first["cause"]) == (1, 1, "Tensor.mul_.0.forward", "argument"), first


def test_a_product_with_a_mask_rounds_one_operand(tmp_path, compare):
    """Its error is less by the root of two, and no sign of full precision. The first step is recorded in part, so that the second begins
    with entries that nobody made."""
    codes(tmp_path / "gpu", turns=False, step_on="auto")
    with TensorFloat():
        codes(tmp_path / "npu", turns=False, step_on="auto")
    code, report = compare(tmp_path / "gpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]


def field(output: Path, factor: float = 1.0) -> None:
    torch.manual_seed(2)
    see = nn.Sequential(nn.Conv2d(12, 16, 1), nn.ReLU(), nn.Conv2d(16, 3, 1))
    x, filters = torch.randn(4, 3, 12, 12), torch.randn(12, 1, 3, 3)
    with probe.capture(output, model=see, steps=[0], level="module", task="sketch"):
        seen = F.conv2d(x * factor, filters, padding=1, groups=3)
        F.mse_loss(see(seen), x).backward()
        probe.step()


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_what_a_function_in_front_of_the_modules_makes(tmp_path, compare, factor):
    field(tmp_path / "gpu")
    with TensorFloat():
        field(tmp_path / "npu", factor)
    code, report = compare(tmp_path / "gpu", tmp_path / "npu")
    if factor == 1.0:
        assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]
    else:
        assert (code, report["first_divergence"]["cause"]) == (1, "input"), report["first_divergence"]
