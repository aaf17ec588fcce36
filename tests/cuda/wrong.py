"""Kernels of Triton's: one that a program calls by itself, and wrong ones that lie below the capture.

A wrong kernel takes the place of one call of an operator for the device. Nothing above it can tell: modes, autograd and autocast see the
operator that the program called. On the host, Triton's interpreter runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn

aten = torch.ops.aten

#: Elements that a program of the kernels takes.
_BLOCK = 1024


@triton.jit
def _gelu(x, y, count, BLOCK: tl.constexpr):
    """A GELU by its logistic form."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(y + at, value / (1.0 + tl.exp(-1.702 * value)), mask=at < count)


@triton.jit
def _gelu_backward(x, dy, dx, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    gate = 1.0 / (1.0 + tl.exp(-1.702 * value))
    slope = gate + 1.702 * value * gate * (1.0 - gate)
    tl.store(dx + at, tl.load(dy + at, mask=at < count, other=0.0).to(tl.float32) * slope, mask=at < count)


@triton.jit
def _spoil(x, count, start, end, factor, add, BLOCK: tl.constexpr):
    """Elements from `start` to `end` are multiplied, and something is added to them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = (at < count) & (at >= start) & (at < end)
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    tl.store(x + at, value * factor + add, mask=there)


@triton.jit
def _product(a, b, c, M, N, K: tl.constexpr, SHORT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product whose sums are kept in bfloat16, or in float32."""
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * K + inner[None, :], mask=(row[:, None] < M) & (inner[None, :] < K), other=0.0)
        right = tl.load(b + inner[:, None] * N + column[None, :], mask=(inner[:, None] < K) & (column[None, :] < N), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
        if SHORT:
            total = total.to(tl.bfloat16).to(tl.float32)
    tl.store(c + row[:, None] * N + column[None, :], total, mask=(row[:, None] < M) & (column[None, :] < N))


def _grid(count: int) -> tuple[int]:
    return (-(-count // _BLOCK),)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        _gelu[_grid(x.numel())](x, y, x.numel(), BLOCK=_BLOCK)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        _gelu_backward[_grid(x.numel())](x, dy.contiguous(), dx, x.numel(), BLOCK=_BLOCK)
        return dx


class Gelu(nn.Module):
    """A GELU that a program computes with kernels of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Function.apply(x)


@dataclass(frozen=True)
class Fault:
    """Call `call` of `op` in `phase` of `step` is wrong. `what`: `scale`, `row`, `tail`, `nan` or `accumulation`."""

    op: str
    phase: str
    what: str
    step: int = 0
    call: int = 0
    by: float = 1.0
    #: Which of its results.
    output: int = 0

    @property
    def name(self) -> str:
        return f"{self.what} in {self.phase} of aten::{self.op} call {self.call}"


@dataclass
class Below:
    """Runs below the capture: counts calls, and spoils one."""

    fault: Fault | None
    phase: str = "forward"
    step: int = 0
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    hits: int = 0
    busy: bool = False


_current: Below | None = None
_registered: dict[str, torch.library.Library] = {}


def _spoiled(fault: Fault, out: torch.Tensor, inputs: tuple[Any, ...]) -> None:
    """Writes what is wrong into `out`."""
    count, last = out.numel(), out.shape[-1] if out.dim() else 1
    if fault.what == "accumulation":
        a, b = (value.contiguous() for value in inputs[-2:])
        (m, k), n = a.shape, b.shape[1]
        found = torch.empty(m, n, dtype=out.dtype, device=out.device)
        _product[(-(-m // 32), -(-n // 32))](a, b, found, m, n, K=k, SHORT=True, BM=32, BN=32, BK=16)
        out.copy_(found + inputs[0] if len(inputs) == 3 else found)
        return
    plain = out if out.is_contiguous() else out.contiguous()
    row = (count // last) * 3 // 8 * last
    start, end, factor, add = {
        "scale": (0, count, fault.by, 0.0),
        "row": (row, row + last, fault.by, 0.0),
        "tail": (count - max(1, count // 8), count, 0.0, 0.0),
        "nan": (row, row + 1, float("nan"), 0.0),
    }[fault.what]
    _spoil[_grid(count)](plain, count, start, end, factor, add, BLOCK=_BLOCK)
    if plain is not out:
        out.copy_(plain)


#: Dispatch keys with which a kernel goes on, by the kind of the device.
_KEYS = {kind: torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, kind.upper())) for kind in ("cpu", "cuda")}


def _kernel(name: str, op: Any) -> Callable[..., Any]:
    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        below = _current
        kind = next(value.device.type for value in args if isinstance(value, torch.Tensor))
        result = op.redispatch(_KEYS[kind], *args, **kwargs)
        if below is None or below.busy:
            return result
        place = (name, below.phase, below.step)
        call = below.counts[place]
        below.counts[place] += 1
        fault = below.fault
        if fault is None or (fault.op, fault.phase, fault.step, fault.call) != (*place, call):
            return result
        below.busy = True
        try:
            parts = [part for part in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(part, torch.Tensor)]
            with torch._C.DisableTorchFunction(), torch.no_grad():
                _spoiled(fault, parts[fault.output], tuple(value for value in args if isinstance(value, torch.Tensor)))
            below.hits += 1
        finally:
            below.busy = False
        return result

    return run


def register(ops: list[str], kind: str) -> None:
    """Puts kernels under these operators, of a device that they know. Each once a process."""
    if kind not in _KEYS:
        return
    for name in ops:
        if name in _registered:
            continue
        base, _, overload = name.partition(".")
        op = getattr(getattr(aten, base), overload or "default")
        library = _registered[name] = torch.library.Library("aten", "IMPL")
        library.impl(op, _kernel(name, op), "BackendSelect", with_keyset=True)


@contextmanager
def below(fault: Fault | None, ops: list[str], kind: str) -> Iterator[Below]:
    """Code below this runs above kernels that count calls, one of which may be wrong."""
    global _current
    register(ops, kind)
    _current = Below(fault)
    try:
        yield _current
    finally:
        _current = None
