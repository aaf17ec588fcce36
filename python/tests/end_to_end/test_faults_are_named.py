"""Two real trainings, one of them on a device that is wrong at one op: the comparison names it, at every level and task."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest
import training
from extent import chosen

import probe

TASKS = ["statistics", "sketch", "hash", "tensor"]
LEVELS = ["op", "api", "mix", "module"]


def record(output: Path, kind: str, level: str, task: str, fault: str | None) -> list[float]:
    model, step = training.make(kind)
    with training.device(fault), probe.capture(output, model=model, steps=[0, 1], level=level, task=task):
        return [step() for _ in range(2)]


# The op at fault when the second GELU, or the second batch normalisation, is: by level.
TRANSFORMER = {
    "op": "Aten.gelu.1.forward",
    "api": "Functional.gelu.1.forward",
    "mix": "Functional.gelu.1.forward",
    "module": "Module.layers.1.Block.forward.0",
}
CONV = {
    "op": "Aten.native_batch_norm.1.forward",
    "api": "Functional.batch_norm.1.forward",
    "mix": "Functional.batch_norm.1.forward",
    "module": "Module.features.5.BatchNorm2d.forward.0",
}


KINDS = {"transformer": ("aten::gelu/1", TRANSFORMER), "conv": ("aten::native_batch_norm/1", CONV)}
#: Each level and each task with both models.
FEW = [(kind, level, TASKS[(place + shift) % 4]) for shift, kind in enumerate(KINDS) for place, level in enumerate(LEVELS)]


@pytest.mark.parametrize(("kind", "level", "task"), chosen(list(product(KINDS, LEVELS, TASKS)), FEW))
def test_a_wrong_forward_op(tmp_path, compare, kind, level, task):
    fault, expected = KINDS[kind]
    record(tmp_path / "good", kind, level, task, None)
    record(tmp_path / "again", kind, level, task, None)
    record(tmp_path / "bad", kind, level, task, fault)
    code, clean = compare(tmp_path / "good", tmp_path / "again")
    assert (code, clean["verdict"], clean["culprits"]) == (0, "agree", [])
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert code == 1
    assert (first["step"], first["op"], first["role"]) == (0, expected[level], "introduces")
    assert any("training.py" in frame for frame in first["stack"])


@pytest.mark.parametrize("level", ["op", "api", "mix"])
def test_a_wrong_backward_op(tmp_path, compare, level):
    fault = "aten::gelu_backward/1"
    record(tmp_path / "good", "transformer", level, "sketch", None)
    record(tmp_path / "bad", "transformer", level, "sketch", fault)
    _, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    # The second to run backward is the second of three.
    expected = {"op": "Aten.gelu_backward.1.backward"}.get(level, "Functional.gelu.1.backward")
    assert (first["step"], first["op"]) == (0, expected)
    assert "F.gelu" in first["stack"][0]


ROUNDED = list(product(("transformer", "conv", "autocast"), ("op", "api", "module"), ("statistics", "sketch", "tensor")))
#: Each two of model, level and task meet once.
FEW_ROUNDED = [setting for place, setting in enumerate(ROUNDED) if (place + place // 3 + place // 9) % 3 == 0]


@pytest.mark.parametrize(("kind", "level", "task"), chosen(ROUNDED, FEW_ROUNDED))
def test_rounding_is_no_fault(tmp_path, compare, kind, level, task):
    """Gradients that are rounding noise become full steps in Adam: the next step begins with other weights."""
    record(tmp_path / "good", kind, level, task, None)
    record(tmp_path / "rounded", kind, level, task, "rounding")
    code, report = compare(tmp_path / "good", tmp_path / "rounded")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", [])
    assert report["counts"]["verdicts"]["differs"] == 0
    assert any("have drifted" in note for note in report["notes"]) or task == "statistics", report["notes"]


@pytest.mark.parametrize(
    ("kind", "task", "seed"),
    [("autocast", "sketch", 20), ("autocast", "tensor", 8), ("conv", "statistics", 21), ("conv", "sketch", 22)],
)
def test_rounding_is_no_fault_in_any_step(tmp_path, compare, kind, task, seed):
    """Means and updates that cancel, squares of noise; the last loss is read after the last step, alone in one more."""
    for name, mode in (("good", nullcontext()), ("rounded", training.RoundingDevice(seed))):
        model, step = training.make(kind)
        with mode, probe.capture(tmp_path / name, model=model, steps="all", level="op", task=task):
            for _ in range(4):
                step()
    code, report = compare(tmp_path / "good", tmp_path / "rounded")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", [])
    assert report["baseline"]["steps"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["transformer", "conv"])
def test_an_optimizer_at_fault_shows_in_the_next_step(tmp_path, compare, kind):
    record(tmp_path / "good", kind, "module", "sketch", None)
    record(tmp_path / "bad", kind, "module", "sketch", "update")
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["cause"], first["op"]) == (1, 0, "optimizer", "Optimizer.AdamW.step.0")


@pytest.mark.parametrize("task", ["sketch", "tensor"])
@pytest.mark.parametrize(
    ("level", "op"),
    # At level module, what the function in the block made wrong is seen where the next module reads it.
    [("api", "Functional.gelu.1.forward"), ("op", "Aten.gelu.1.forward"), ("module", "Module.layers.1.Block.forward.0")],
)
def test_a_fault_under_autocast(tmp_path, compare, level, op, task):
    """A result that is off by one in a hundred, in a type that resolves half of that."""
    record(tmp_path / "good", "autocast", level, task, None)
    record(tmp_path / "bad", "autocast", level, task, "aten::gelu/1")
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["op"], first["cause"]) == (1, 0, op, "numerics")


@pytest.mark.parametrize(("level", "op"), [("api", "Functional.gelu.1.forward"), ("op", "Aten.gelu.1.forward")])
def test_a_fault_beside_other_rounding(tmp_path, compare, level, op):
    """In the second step, where the weights have drifted."""
    record(tmp_path / "good", "transformer", level, "sketch", None)
    with training.device("rounding"):
        # Three calls of GELU in a step.
        record(tmp_path / "bad", "transformer", level, "sketch", "aten::gelu/4")
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["op"], first["role"]) == (1, 1, op, "introduces")
