"""Numbers that stand for the absence of one are counted, and left out of what they would swamp."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dumps import Dump


def scores(dtype: torch.dtype, length: int) -> torch.Tensor:
    """Scores of an attention, with the least number of the type where nothing is to be seen."""
    values = torch.randn(2, 4, length, length, generator=torch.Generator().manual_seed(3)).to(dtype)
    return values.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), torch.finfo(dtype).min)


@pytest.mark.parametrize("task", ["statistics", "sketch"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_mask_does_not_swamp_what_it_masks(record: Any, dtype: torch.dtype, task: str) -> None:
    masked = scores(dtype, 40)
    slot = record(masked.exp, task=task).all("Tensor.exp")[0]["input.0"]
    is_sentinel = masked == torch.finfo(dtype).min
    rest = masked[~is_sentinel].double()
    assert slot.sentinels == is_sentinel.sum() and slot.elements == masked.numel() and slot.zeros == (masked == 0).sum()
    assert slot.min == torch.finfo(dtype).min and slot.max == masked.max()
    assert slot.norm == pytest.approx(float(rest.norm()), rel=1e-12)
    assert slot.mean == pytest.approx(float(rest.mean()), rel=1e-9)


def test_a_tensor_of_nothing_else(record: Any) -> None:
    slot = record(torch.full((1000,), -3.4e38).exp, task="sketch").all("Tensor.exp")[0]["input.0"]
    assert (slot.sentinels, slot.norm, slot.mean) == (1000, 0.0, None)
    assert slot.sketch == bytes(1024)


def test_other_types_have_none(record: Any) -> None:
    tensors = [torch.full((9,), 1e35, dtype=torch.complex64), torch.full((9,), -(2**62)), torch.full((9,), -448.0).to(torch.float8_e4m3fn)]
    dump: Dump = record(lambda: [tensor.clone() for tensor in tensors], task="statistics")
    for op in dump.all("Tensor.clone"):
        assert op["input.0"].sentinels == 0 and op["input.0"].norm > 0
