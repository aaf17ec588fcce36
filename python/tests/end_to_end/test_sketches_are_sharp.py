"""Sketches of two trainings say nearly what the data of the very same trainings says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import training
from extent import chosen

import probe

#: Below this, relative to the norm, a sketch resolves nothing.
RESOLVED = 3e-7


def record(output: Path, kind: str, level: str, task: str, fault: str | None) -> None:
    model, step = training.make(kind)
    with training.device(fault), probe.capture(output, model=model, steps=[0, 1], level=level, task=task):
        for _ in range(2):
            step()


@pytest.fixture
def one_thread():
    """So that a training is the same whenever it is recorded."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FAULTS = [("transformer", "aten::gelu/1"), ("transformer", "rows aten::native_layer_norm/0"), ("conv", "aten::native_batch_norm/1")]
LEVELS = ["module", "api", "op"]
EACH = [(*fault, level) for fault in FAULTS for level in LEVELS]


@pytest.mark.parametrize(("kind", "fault", "level"), chosen(EACH, EACH[::4]))
def test_estimates_are_within_a_fifth_of_the_exact_error(tmp_path, compare, one_thread, kind, fault, level):
    errors: dict[str, dict[tuple[int, str, str], float]] = {}
    for task in ("sketch", "tensor"):
        good, bad = tmp_path / f"good-{task}", tmp_path / f"bad-{task}"
        record(good, kind, level, task, None)
        record(bad, kind, level, task, fault)
        compare(good, bad)
        rows = pq.read_table(tmp_path / f"report-{good.name}-{bad.name}" / "result.parquet").to_pylist()
        # Small tensors have their elements in either.
        basis = {"sketch": ("sketch", "data"), "tensor": ("data",)}[task]
        errors[task] = {(row["step"], row["op"], row["slot"]): row["rel_l2"] for row in rows if row["basis"] in basis}
    exact = {slot: error for slot, error in errors["tensor"].items() if error is not None and error >= RESOLVED}
    assert len(exact) > 60
    near = [slot for slot, error in exact.items() if 0.8 <= (errors["sketch"].get(slot) or 0.0) / error <= 1.2]
    assert len(near) >= 0.99 * len(exact), sorted(exact.keys() - near)[:20]


@pytest.mark.parametrize("wrong", ["rows", "sign"])
def test_swapped_rows_and_flipped_signs_are_seen(tmp_path, compare, wrong):
    # The first dimension of what the attention puts out is the sample: exchanged, all statistics stay what they were.
    op, name = "aten::_scaled_dot_product_flash_attention_for_cpu", "Functional.scaled_dot_product_attention.0.forward"
    for task in ("statistics", "sketch"):
        record(tmp_path / f"good-{task}", "transformer", "api", task, None)
        record(tmp_path / f"bad-{task}", "transformer", "api", task, f"{wrong} {op}/0")
    _, report = compare(tmp_path / "good-sketch", tmp_path / "bad-sketch")
    first = report["first_divergence"]
    assert (first["step"], first["op"], first["role"]) == (0, name, "introduces")
    _, blind = compare(tmp_path / "good-statistics", tmp_path / "bad-statistics")
    assert wrong == "sign" or blind["first_divergence"] is None or blind["first_divergence"]["op"] != name
