"""Small tensors are recorded as they are, where others have a sketch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import probe
from dumps import Dump

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def any_bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits, so that floats have NaN of many kinds, infinities and subnormal numbers among them."""
    source = torch.Generator().manual_seed(7)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=source).bool()
    bits = torch.randint(0, 256, (*shape, dtype.itemsize), generator=source, dtype=torch.uint8)
    return bits.view(dtype)[..., 0]


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().view(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("level", ["api", "op"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_comes_back_to_the_bit(record: Any, dtype: torch.dtype, level: str) -> None:
    tensors = [any_bits(dtype), any_bits(dtype, 0, 3), any_bits(dtype, 5, 7), any_bits(dtype, 6, 4).t(), any_bits(dtype, 1, 3).expand(4, 3)]
    dump = record(lambda: [tensor.clone() for tensor in tensors], level=level, task="sketch")
    ops = dump.all("Aten.clone" if level == "op" else "Tensor.clone")
    for op, tensor in zip(ops, tensors):
        for slot in (op["input.0"], op["output.0"]):
            assert slot.dtype == str(dtype) and slot.shape == tuple(tensor.shape)
            assert bits(slot.data) == bits(tensor)
            assert slot.sketch is None and slot.hash is not None and slot.elements == tensor.numel()


def test_special_values(record: Any) -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 5e-324, -1.7e308], dtype=torch.float64)
    values.view(torch.int64)[0] |= 0xBEEF
    slot = record(values.exp, task="sketch").all("Tensor.exp")[0]["input.0"]
    assert bits(slot.data) == bits(values)
    assert (slot.nan, slot.pos_inf, slot.neg_inf, slot.zeros) == (1, 1, 1, 1)


def test_conjugated_and_negated_views(record: Any) -> None:
    value = torch.complex(torch.randn(9), torch.randn(9))
    views = [value.conj(), value.conj().imag, torch._neg_view(torch.randn(5))]
    ops = record(lambda: [view.exp() for view in views], task="sketch").all("Tensor.exp")
    assert [bits(op["input.0"].data) for op in ops] == [bits(view.resolve_conj().resolve_neg()) for view in views]


def test_small_is_less_than_two_kibibytes(record: Any) -> None:
    below, above = torch.randn(511), torch.randn(512)
    ops = record(lambda: [below.exp(), above.exp()], task="sketch").all("Tensor.exp")
    assert bits(ops[0]["input.0"].data) == bits(below) and ops[0]["input.0"].sketch is None
    assert ops[1]["input.0"].row["data"] is None and len(ops[1]["input.0"].sketch) == 1024


def test_equal_elements_are_stored_once(record: Any) -> None:
    x = torch.randn(20)
    dump = record(lambda: [(x * 1).abs_() for _ in range(10)], task="sketch")
    slots = [slot for op in dump.ops for slot in op.slots.values() if slot.kind == "tensor"]
    assert len(slots) > 30
    assert sum(slot.row["data"] is not None for slot in slots) == 2
    assert {bits(slot.data) for slot in slots} == {bits(x), bits(x.abs())}


@pytest.mark.parametrize("task", ["statistics", "hash"])
def test_other_tasks_store_no_elements(record: Any, task: str) -> None:
    slot = record(torch.randn(20).exp, task=task).all("Tensor.exp")[0]["input.0"]
    assert slot.row["data"] is None and slot.sketch is None and (slot.hash is not None) == (task == "hash")


def test_data_in_a_shard_needs_no_sketch(record: Any) -> None:
    x = torch.randn(20)
    slot = record(x.exp, task="tensor").all("Tensor.exp")[0]["input.0"]
    assert slot.offset is not None and slot.row["data"] is None and slot.sketch is None
    assert bits(slot.data) == bits(x)


def test_a_program_that_is_killed_leaves_them_in_its_journal(tmp_path: Path) -> None:
    x = torch.randn(20)
    capture = probe.Capture(tmp_path / "dump", task="sketch", level="api")
    capture.start()
    try:
        for _ in range(40):
            x.exp()
        ops = Dump(tmp_path / "dump", journal=True).all("Tensor.exp")
        assert ops and all(bits(op["input.0"].data) == bits(x) for op in ops)
    finally:
        capture.stop()
        capture.close()
