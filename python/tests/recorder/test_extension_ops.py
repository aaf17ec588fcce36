"""Operators of extensions, which a program calls through `torch.ops`: the fused ones of torch_npu are such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """Operators as an extension in C++ registers them, with and without a gradient."""
    made = torch.library.Library("probe_test", "DEF")
    made.define("twice(Tensor x) -> (Tensor, Tensor)")
    made.define("rotate_(Tensor(a!) x, Tensor(b!) y, float by=1.0) -> ()")
    made.define("add_to(Tensor(a!) x, Tensor y) -> Tensor")
    made.define("size(Tensor x) -> int")
    made.impl("twice", lambda x: (x * 2, x.detach().sum()), "CompositeImplicitAutograd")
    made.impl("rotate_", _rotate, "CPU")
    made.impl("add_to", lambda x, y: x.add_(1) * y, "CPU")
    made.impl("size", lambda x: x.numel(), "CompositeImplicitAutograd")
    yield made
    made._destroy() if hasattr(made, "_destroy") else made.__del__()


def _rotate(x: torch.Tensor, y: torch.Tensor, by: float = 1.0) -> None:
    before = x.clone()
    x.copy_(x + by * y)
    y.copy_(y - by * before)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("level", ["api", "mix"])
def test_what_they_read_and_made_is_recorded(record: Any, level: str) -> None:
    leaf = torch.arange(1000.0, requires_grad=True)
    x = leaf + 0

    def work() -> None:
        double, _ = torch.ops.probe_test.twice(x)
        (double + torch.ops.probe_test.twice.default(x)[0]).sum().backward()

    dump = record(work, level=level)
    calls = dump.all("Probe_test.twice")
    assert [call.phase for call in calls] == ["forward"] * 2 + ["backward"] * 2
    for call in calls[:2]:
        assert torch.equal(call["input.0"].data, x.detach())
        assert torch.equal(call["output.0"].data, x.detach() * 2) and call["output.1"].data == x.sum()
    assert leaf.grad is not None and leaf.grad.eq(4).all()
    assert all(call["output.0"].data.eq(2).all() for call in calls[2:])


@pytest.mark.usefixtures("library")
def test_what_they_write_to_is_their_result(record: Any) -> None:
    x, y = torch.arange(1000.0), torch.ones(1000)
    made: list[torch.Tensor] = []

    def work() -> None:
        torch.sum(x)
        torch.ops.probe_test.rotate_(x, y=y)
        made.append(torch.ops.probe_test.add_to(x, y))
        torch.sum(x)

    start, ones = x.clone(), y.clone()
    dump = record(work, level="api")
    (rotate,) = dump.all("Probe_test.rotate_")
    assert torch.equal(rotate["input.0"].data, start) and torch.equal(rotate["kwarg.y"].data, ones)
    assert torch.equal(rotate["output.0"].data, start + 1) and torch.equal(rotate["output.1"].data, ones - start)
    (added,) = dump.all("Probe_test.add_to")
    assert torch.equal(added["input.0"].data, start + 1) and torch.equal(added["output.0"].data, made[0])
    # Earlier knowledge of the memory no longer holds.
    assert torch.equal(dump.all("Torch.sum")[1]["input.0"].data, start + 2)


@pytest.mark.usefixtures("library")
def test_questions_and_what_torch_calls_for_itself_are_not_recorded(record: Any) -> None:
    def work() -> None:
        assert torch.ops.probe_test.size(torch.ones(3)) == 3
        torch.ops.prim.device(torch.ones(3))

    dump = record(work, level="api")
    assert [op for op in dump.names if not op.startswith("Torch.ones")] == []


class PassOn(TorchDispatchMode):
    """As tools that count or cache ops do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_torchs_own_are_not_recorded_beside_its_functions(record: Any) -> None:
    """Dispatch modes call them one by one, in the backward pass where nothing else is being recorded."""
    x = torch.randn(50, 20, requires_grad=True)

    def work() -> None:
        with PassOn():
            F.gelu(x * 1).sum().backward()
        torch.ops.aten.gelu(x)

    names = record(work, level="api").names
    assert [name for name in names if not name.startswith(("Functional.gelu.0.", "Tensor.__mul__.0.", "Tensor.sum.0."))] == []
