"""Checks of values that one device alone makes: `one_hot` of torch looks at its indices on a host, and not on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import probe


def record(output: Path, checks: bool, wrong: bool = False) -> None:
    """A step in which experts are looked up by their number; scalars that are 0 are read all over it."""
    torch.manual_seed(0)
    embedding, linear = nn.Embedding(8, 16), nn.Linear(16, 8)
    model = nn.ModuleList([embedding, linear])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    chosen = torch.randint(0, 4, (6,))
    with probe.capture(output, model=model, level="op", steps=[0]):
        if checks:
            assert chosen.min().item() >= 0 and chosen.max().item() < 8
        if wrong:
            chosen = (chosen + chosen.min() + 1) % 4
        hits = torch.zeros(4, 6, dtype=torch.int64).scatter_(0, chosen[None], 1)
        for expert in (hits.sum(1) > 0).nonzero():
            F.mse_loss(linear(embedding(expert * 1 + chosen[:1])), torch.ones(1, 8)).backward()
        optimizer.step()


@pytest.mark.parametrize("on_baseline", [True, False])
def test_what_only_the_program_looks_at_is_no_divergence(tmp_path, compare, on_baseline):
    record(tmp_path / "baseline", checks=on_baseline)
    record(tmp_path / "candidate", checks=not on_baseline)
    code, report = compare(tmp_path / "baseline", tmp_path / "candidate")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]


def test_what_is_made_of_it_is_one(tmp_path, compare):
    record(tmp_path / "baseline", checks=False)
    record(tmp_path / "candidate", checks=True, wrong=True)
    code, report = compare(tmp_path / "baseline", tmp_path / "candidate")
    assert (code, report["verdict"]) == (1, "diverged")
