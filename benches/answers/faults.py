"""Faults of a kernel in one call: in its results, or in what it reads."""

from __future__ import annotations

import math
from typing import Any

import torch

import rounding
from rounding import aten, cast, clone, cpu, is_inplace, mapped, tensors, write

#: Faults of what the kernel reads; all others are faults of what it writes.
OF_ARGUMENTS = {"index", "memory", "epsilon"}


def misread(fault: dict[str, Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as a kernel with this fault reads them."""
    what = fault["what"]
    if what == "index":  # off by one, in the first argument of integers
        at = next(i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.dtype == torch.int64)
        top = int(args[at].max())
        wrong = args[at].add(1).clamp_max(top)
        return (*args[:at], wrong, *args[at + 1 :])
    if what == "epsilon":  # another small number beside the variance than the one that was asked for
        at = max(i for i, a in enumerate(args) if isinstance(a, float))
        return (*args[:at], fault["value"], *args[at + 1 :])
    at = fault["argument"]  # memory of a transposed tensor read from its start to its end
    t = args[at]
    wrong = t.as_strided(t.shape, contiguous_strides(t.shape), t.storage_offset())
    return (*args[:at], wrong, *args[at + 1 :])


def contiguous_strides(shape: torch.Size) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def fits_memory(t: torch.Tensor) -> bool:
    """Not contiguous, and as large as its memory."""
    if t.is_contiguous() or not t.numel() or 0 in t.stride():
        return False
    last = sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
    return last + 1 == t.numel()


def written(op: Any, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Returns what an in-place op is about to overwrite."""
    return [clone(t) for t in tensors(op, args, None)] if is_inplace(op) else []


def spoil(
    fault: dict[str, Any],
    name: str,
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    before: list[torch.Tensor],
    parts: list[torch.Tensor],
) -> None:
    """Writes one wrong result in place; `fault["output"]` says which, absent is the first."""
    what, part = fault["what"], parts[fault.get("output", 0)]
    if what in ("formula", "accumulation") or what in OF_ARGUMENTS:
        if what in OF_ARGUMENTS:
            results = tensors(op, args, cpu(op, *misread(fault, args), **kwargs))
        else:
            results = (formula if what == "formula" else accumulated)(fault, name, op, args, kwargs)
        for part, value in zip(parts, results, strict=False):
            write(part, value)
        return
    values = cpu(aten.clone.default, part, memory_format=torch.contiguous_format)
    line = values.view(-1)
    rows = values.view(-1, values.shape[-1]) if values.dim() > 1 else values.view(1, -1)
    count, typical = line.numel(), float(cast(line, torch.float64).square().mean().sqrt())
    at = int(fault.get("place", 0.37) * count)
    row = int(fault.get("place", 0.37) * len(rows))
    if what == "scale":
        values.mul_(fault["by"])
    elif what == "element":
        line[at] += fault.get("times", 1.0) * max(typical, 1e-30)
    elif what == "row":
        rows[row].mul_(fault["by"])
    elif what == "tail":
        line[count - max(1, count // 8) :].mul_(fault["by"])
    elif what == "channel":
        values.select(
            1 if values.dim() > 3 else -1, int(fault.get("place", 0.37) * values.shape[1 if values.dim() > 3 else -1])
        ).mul_(fault["by"])
    elif what == "swap":
        other = (row + max(1, len(rows) // 2)) % len(rows)
        rows[[row, other]] = rows[[other, row]]
    elif what == "shift":
        values = values.roll(1, -1)
    elif what in ("nan", "inf"):
        line[at] = math.nan if what == "nan" else math.inf
    elif what == "update":
        values = cast(before[fault.get("output", 0)], torch.float64).lerp(cast(values, torch.float64), fault["by"])
    elif what == "update tail":
        start = count - max(1, count // 8)
        line[start:] = before[fault.get("output", 0)].reshape(-1)[start:]
    else:
        raise ValueError(what)
    write(part, values)


def formula(
    fault: dict[str, Any], name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The same function by another formula."""
    if name in ("gelu", "gelu_backward"):
        other = "none" if kwargs.get("approximate", "none") == "tanh" else "tanh"
        return [cpu(op, *args, approximate=other)]
    x = cast(args[0], torch.float64)
    if name == "native_layer_norm":  # the small number outside of the root
        dims = list(range(-len(args[1]), 0))
        mean, spread = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True).sqrt()
        out = x.sub(mean).div(spread.add(args[4]))
        weight, bias = args[2:4]
        out = out if weight is None else out.mul(cast(weight, torch.float64))
        return [out if bias is None else out.add(cast(bias, torch.float64))]
    if name == "rsqrt":  # a table of 8 bits and one step of Newton
        start = cast(cast(x.rsqrt(), torch.bfloat16), torch.float64)
        return [start.mul(start.square().mul(x).mul(-0.5).add(1.5))]
    if name in ("silu", "sigmoid"):  # sigmoid by a rational function for tanh
        half = x.mul(0.5).clamp(-4.97, 4.97)
        square = half.square()
        tanh = half.mul(square.add(378).mul(square).add(17325).mul(square).add(135135))
        tanh = tanh.div(square.mul(28).add(3150).mul(square).add(62370).mul(square).add(135135))
        gate = tanh.add(1).mul(0.5)
        return [gate.mul(x) if name == "silu" else gate]
    if name in ("_softmax", "exp"):  # exponentials by a polynomial of degree 4
        if name == "_softmax":
            top = x.amax(args[1], keepdim=True)
            x = x.sub(torch.where(top == -math.inf, torch.zeros_like(top), top))
        scaled = x.mul(1 / math.log(2)).clamp_min(-1000)
        whole = scaled.round()
        rest = scaled.sub(whole).mul(math.log(2))
        value = rest.div(24).add(1 / 6).mul(rest).add(0.5).mul(rest).add(1).mul(rest).add(1).mul(torch.exp2(whole))
        return [value.div(value.sum(args[1], keepdim=True)) if name == "_softmax" else value]
    raise ValueError(name)


#: Ops for which `formula` knows another one.
FORMULAS = ("gelu", "gelu_backward", "native_layer_norm", "rsqrt", "silu", "sigmoid", "_softmax", "exp")


def accumulated(
    fault: dict[str, Any], name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Products summed up in a short type; other ops computed in it."""
    dtype = getattr(torch, fault["dtype"])
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        a, b = (cast(t, torch.float32) for t in args[-2:])
        multiply = aten.bmm.default if a.dim() == 3 else aten.mm.default
        total = None
        for piece in rounding.pieces(a.shape[-1])[::-1]:
            part = cpu(multiply, a[..., piece], b[..., piece, :])
            total = cast(cast(part if total is None else total.add(part), dtype), torch.float32)
        if name in ("addmm", "baddbmm"):
            total = cast(args[0], torch.float32).mul(kwargs.get("beta", 1)).add(total, alpha=kwargs.get("alpha", 1))
        return [total]

    def short(t: torch.Tensor) -> torch.Tensor:
        return cast(cast(t, dtype), t.dtype) if t.dtype.is_floating_point else t

    return [short(t) for t in tensors(op, args, cpu(op, *mapped(short, args), **kwargs))]


def holds_integers(args: tuple[Any, ...]) -> bool:
    return any(isinstance(t, torch.Tensor) and t.dtype == torch.int64 and t.numel() > 1 for t in args)
