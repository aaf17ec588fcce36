"""Where the greatest and the least element are, against NumPy."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import pytest
import torch

from probe.recorder import core

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def filled(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Elements of which many are equal, and some neither positive nor negative, nor finite."""
    draw = torch.Generator().manual_seed(len(shape) + sum(shape))
    values = torch.randn(*shape, generator=draw, dtype=torch.float64)
    if dtype.is_complex:
        return torch.complex(values, torch.randn(*shape, generator=draw, dtype=torch.float64)).to(dtype)
    if not dtype.is_floating_point:
        return values.mul(40).abs().to(torch.int64).to(dtype)
    values = values.clamp(-2, 2)
    flat = values.view(-1)
    flat[::7] = -0.0
    flat[3::11] = 0.0
    for start, special in [(5, float("nan")), (9, float("inf")), (13, float("-inf"))]:
        flat[start::101] = special
    return values.to(dtype)


def wanted(tensor: torch.Tensor) -> tuple[Optional[int], Optional[int]]:
    """`argmin` and `argmax` of the finite elements."""
    if tensor.dtype.is_floating_point:
        values = tensor.double().numpy().ravel()
    else:
        values = tensor.resolve_conj().numpy().ravel()
    finite = np.isfinite(values)
    if not finite.any():
        return None, None
    values = np.abs(values) if tensor.dtype.is_complex else values
    if values.dtype.kind not in "fc":
        return int(values.argmin()), int(values.argmax())
    return int(np.where(finite, values, np.inf).argmin()), int(np.where(finite, values, -np.inf).argmax())


def is_permuted(tensor: torch.Tensor) -> bool:
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]
    return strides != sorted(strides, reverse=True)


def views(dtype: torch.dtype) -> list[torch.Tensor]:
    matrix, cube = filled(dtype, 300, 70), filled(dtype, 6, 50, 80)
    return [
        matrix,
        matrix.t(),
        matrix[::3, 5:],
        matrix[:1, :1].squeeze(),
        cube.permute(2, 0, 1),
        cube.transpose(1, 2),
        filled(dtype, 40, 1).expand(40, 90),
        filled(dtype, 20),
        filled(dtype, 3, 4).t(),
        torch.zeros(0, 3, dtype=dtype),
        # All that is not the least lies behind in memory, and in front by index.
        torch.cat([torch.zeros(90, 100), torch.ones(10, 100)]).to(dtype).t(),
    ]


@pytest.mark.parametrize("task", ["statistics", "sketch", "tensor"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_they_are_those_of_numpy(record: Any, dtype: torch.dtype, task: str) -> None:
    tensors = views(dtype)
    if dtype.is_floating_point:
        tensors += [torch.full((9,), float("nan")).to(dtype), torch.tensor([-0.0, 0.0]).to(dtype)]
    if dtype in (torch.float32, torch.bfloat16):
        masked = tensors[0].nan_to_num(0, 0, 0).masked_fill(torch.rand(300, 70) > 0.5, torch.finfo(dtype).min)
        tensors += [masked, masked.t()]
    dump = record(lambda: [tensor.clone() for tensor in tensors], level="op", task=task)
    slots = [op["input.0"] for op in dump.all("Aten.clone")]
    # For statistics alone, one measurement serves a tensor and its transposed views.
    known = [not is_permuted(tensor) or task != "statistics" for tensor in tensors]
    expected = [wanted(tensor) if is_known else (None, None) for tensor, is_known in zip(tensors, known)]
    assert [(slot.min_at, slot.max_at) for slot in slots] == expected


def test_large_integers_differ_in_digits_that_binary64_has_not(record: Any) -> None:
    for dtype in (torch.int64, torch.uint64):
        values = torch.full((5000,), 2**62 + 1, dtype=torch.int64)
        values[4000], values[2500] = 2**62 + 2, 2**62
        slot = record(lambda: values.to(dtype).clone(), level="op").all("Aten.clone")[0]["input.0"]
        assert (slot.min_at, slot.max_at) == (2500, 4000)


def test_what_a_device_measures_has_none_unless_it_is_copied(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for them would take more operations, which are counted."""
    monkeypatch.setattr(core, "_AS_ON_DEVICE", True)
    large, small = torch.randn(40, 50, dtype=torch.float64), torch.randn(4, 5)
    dump = record(lambda: [large.exp(), small.exp()], task="sketch")
    first, second = (op["input.0"] for op in dump.all("Tensor.exp"))
    assert first.max == large.max() and (first.min_at, first.max_at) == (None, None)
    assert (second.min_at, second.max_at) == (int(small.argmin()), int(small.argmax()))
