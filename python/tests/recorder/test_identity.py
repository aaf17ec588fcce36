"""Slots that hold the same tensor have the same identity, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dumps import Dump

Record = Callable[..., Dump]


@pytest.mark.parametrize("size", [1, 3, 5000])
@pytest.mark.parametrize("level", ["api", "op"])
def test_what_an_op_makes_is_known_where_it_is_read(record: Record, level: str, size: int) -> None:
    def work() -> None:
        x = torch.ones(size)
        y = x.sin()
        x.cos()
        y.tan()

    dump = record(work, level=level)
    stem = "Aten" if level == "op" else "Tensor"
    of = {name: dump[f"{stem}.{name}.0.forward"].slots for name in ("sin", "cos", "tan")}
    assert of["sin"]["input.0"].identity == of["cos"]["input.0"].identity is not None
    assert of["sin"]["output.0"].identity == of["tan"]["input.0"].identity
    assert len({of[name][slot].identity for name in of for slot in ("input.0", "output.0")}) == 4


@pytest.mark.parametrize("level", ["api", "op"])
def test_a_write_makes_another_tensor(record: Record, level: str) -> None:
    def work() -> None:
        x = torch.ones(3)
        x.sin()
        x.add_(1)
        x.cos()
        # Torch does not count this one.
        x.data.numpy()[0] = 7
        x.tan()

    dump = record(work, level=level)
    stem = "Aten" if level == "op" else "Tensor"
    before = dump[f"{stem}.sin.0.forward"]["input.0"].identity
    written = dump[f"{stem}.add_.0.forward"]
    assert written["input.0"].identity == before
    after = written["output.0"].identity
    assert after != before and dump[f"{stem}.cos.0.forward"]["input.0"].identity == after
    assert dump[f"{stem}.tan.0.forward"]["input.0"].identity not in (before, after)


def test_views_are_tensors_of_their_own_and_met_again(record: Record) -> None:
    def work() -> None:
        x = torch.arange(12.0).view(3, 4)
        x[0].sin()
        x[1].sin()
        x[0].cos()
        x.t().cos()

    dump = record(work, level="api")
    found = [dump[f"Tensor.{name}.forward"]["input.0"].identity for name in ("sin.0", "sin.1", "cos.0", "cos.1")]
    assert found[0] == found[2] and len(set(found)) == 3


@pytest.mark.parametrize("task", ["statistics", "sketch"])
def test_memory_that_is_used_again_is_another_tensor(record: Record, task: str) -> None:
    def work() -> None:
        for _ in range(300):
            # The allocator hands out the same memory again and again.
            torch.ones(2).neg()

    dump = record(work, level="api", task=task)
    made = [op["output.0"].identity for op in dump.ops]
    assert len(made) == 600 and len(set(made)) == 600


def test_gradients_flow_by_identity(record: Record) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def work() -> None:
        model(torch.ones(5, 3)).sum().backward()

    dump = record(work, model=model, level="module", task="sketch")
    handed = dump["Module.2.Linear.backward.0"]["output.0"].identity
    assert dump["Module.1.ReLU.backward.0"]["input.0"].identity == handed is not None
    assert dump["Module.0.Linear.forward.0"]["output.0"].identity == dump["Module.1.ReLU.forward.0"]["input.0"].identity


def test_tensors_without_a_count_of_writes(record: Record) -> None:
    def work() -> Any:
        with torch.inference_mode():
            x = torch.ones(3).sin()
            x.add_(1)
            return x.cos()

    dump = record(work, level="api")
    made, written = dump["Tensor.sin.0.forward"]["output.0"].identity, dump["Tensor.add_.0.forward"]
    assert written["input.0"].identity == made != written["output.0"].identity
    assert dump["Tensor.cos.0.forward"]["input.0"].identity == written["output.0"].identity
