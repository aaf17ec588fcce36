"""A whole batch against its first rows, and against micro-batches: `probe compare --rows`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import training

import probe


def record(output: Path, rows: list[slice], fault: str | None = None, level: str = "mix", share: float = 1.0) -> None:
    """The forward passes of one step over parts of a batch of eight."""
    torch.manual_seed(5)
    model = training.Transformer()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    words, wanted = torch.randint(0, 40, (8, 12)), torch.randint(0, 40, (8, 12))
    with training.device(fault), probe.capture(output, model=model, steps=[0], level=level, task="tensor"):
        for part in rows:
            (model(words[part], wanted[part]) * share).backward()
        optimizer.step()


@pytest.mark.parametrize("parts", [[slice(0, 3)], [slice(0, 4), slice(4, 8)]], ids=["rows", "micro-batches"])
def test_rows_that_both_have_are_compared(tmp_path, compare, parts):
    record(tmp_path / "whole", [slice(0, 8)])
    record(tmp_path / "parts", parts)
    record(tmp_path / "bad", parts, "aten::gelu/1")
    code, report = compare(tmp_path / "whole", tmp_path / "parts", "--rows")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", [])
    assert any("by the rows that both sides have" in note for note in report["notes"])
    code, report = compare(tmp_path / "whole", tmp_path / "bad", "--rows")
    assert (code, report["first_divergence"]["op"]) == (1, "Functional.gelu.1.forward")
    # Without it, another shape is a difference.
    code, report = compare(tmp_path / "whole", tmp_path / "parts")
    assert (code, report["verdict"]) == (1, "diverged")


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_a_batch_in_micro_batches_is_judged_by_its_gradients(tmp_path, compare, level):
    halves = [slice(0, 4), slice(4, 8)]
    record(tmp_path / "whole", [slice(0, 8)], level=level)
    record(tmp_path / "parts", halves, level=level, share=0.5)
    record(tmp_path / "undivided", halves, level=level)
    record(tmp_path / "bad", halves, "aten::gelu/1", level, 0.5)
    code, report = compare(tmp_path / "whole", tmp_path / "parts")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]
    assert any("in 2 micro-batches" in note for note in report["notes"])
    code, report = compare(tmp_path / "whole", tmp_path / "undivided")
    first = report["first_divergence"]
    assert (code, first["op"], first["cause"]) == (1, "Optimizer.SGD.step.0", "gradient")
    assert first["reason"].startswith("the gradients are 2.000 times the baseline's"), first["reason"]
    code, report = compare(tmp_path / "whole", tmp_path / "bad")
    assert (code, report["first_divergence"]["op"]) == (1, "Optimizer.SGD.step.0")


def test_another_option_is_named_though_its_gradients_are_close(tmp_path, compare, monkeypatch):
    halves = [slice(0, 4), slice(4, 8)]
    record(tmp_path / "whole", [slice(0, 8)])
    gelu = torch.nn.functional.gelu
    monkeypatch.setattr(torch.nn.functional, "gelu", lambda x: gelu(x, approximate="tanh"))
    record(tmp_path / "tanh", halves, share=0.5)
    code, report = compare(tmp_path / "whole", tmp_path / "tanh")
    first = report["first_divergence"]
    assert (code, first["op"], first["cause"]) == (1, "Functional.gelu.0.forward", "argument"), first
