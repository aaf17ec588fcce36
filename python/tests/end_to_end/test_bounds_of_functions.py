"""Functions that cannot make everything of their inputs: what torch computes stays within the bounds that the judge holds them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import probe

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish,
    "relu": F.relu, "relu6": F.relu6, "tanh": torch.tanh, "softsign": F.softsign, "erf": torch.erf, "sin": torch.sin, "cos": torch.cos,
    "sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid, "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "softmin": lambda x: F.softmin(x, -1), "exp": torch.exp, "sqrt": lambda x: (1 + x * x).sqrt(), "square": torch.square, "softplus": F.softplus,
    "mean": lambda x: x.mean(-1), "mean of one": lambda x: x[..., :1].mean(-1), "amax": lambda x: x.amax(-1), "max": lambda x: x.max(-1).values,
    "minimum": lambda x: torch.minimum(x, -x), "max_pool2d": lambda x: F.max_pool2d(x, 2), "avg_pool2d": lambda x: F.avg_pool2d(x, 3, padding=1),
    "another divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3), "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "upsample": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), "add": lambda x: x + x.flip(-1), "add a number": lambda x: x + 2,
    "add a part": lambda x: torch.add(x, x.flip(-1), alpha=3), "sub": lambda x: x - x.flip(-1), "from a number": lambda x: 1 - x,
    "mul": lambda x: x * x.flip(-1), "halves": lambda x: 0.5 * x, "embedding": lambda x: F.embedding(torch.arange(9, device=x.device) % 7, x[0, 0]),
    "attention": lambda x: F.scaled_dot_product_attention(x, x.flip(-1), 2 * x), "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "scaled": lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.5), "in place": lambda x: (x + 1).relu_(), "adds in place": lambda x: x.clone().add_(x),
}  # fmt: skip


class Functions(nn.Module):
    """All of them, of what a product hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.products = nn.Sequential(*(nn.Linear(24, 24) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = 9 * self.products(x)
        return torch.stack([function(x).float().mean() for function in FUNCTIONS.values()]).sum()


def record(dump: Path, level: str, task: str, dtype: torch.dtype, seed: int) -> Path:
    """Another seed: the weights are as near as those of a late step, a few units of bfloat16."""
    torch.manual_seed(0)
    model, x = Functions(), torch.randn(4, 8, 16, 24)
    with torch.no_grad():
        source = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.mul_(1 + 5e-3 * torch.randn(parameter.shape, generator=source))
    model, x = model.to(dtype), x.to(dtype)
    with probe.capture(dump, model=model, steps=[1], level=level, task=task, step_on="program") as capture:
        for _ in range(2):
            model(x).backward()
            capture.step()
    return dump


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["mix", "op"])
def test_what_torch_computes_is_within_them(tmp_path: Path, compare: Any, level: str, task: str, dtype: torch.dtype) -> None:
    code, report = compare(*(record(tmp_path / f"seed {seed}", level, task, dtype, seed) for seed in (1, 2)))
    assert [(culprit["op"], culprit["reason"]) for culprit in report["culprits"]] == []
    assert code == 0
