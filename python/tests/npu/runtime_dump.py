"""The record of the agent below Python, read back; and operators computed again from what they were given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from safetensors import safe_open

TYPES = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64")}


#: Operators in graphs that have no values.
GROUPED = "the program changes its arguments"


@dataclass
class Launch:
    """An operator: what it was given and what it wrote. A tensor, a number, a text, or None in each place; lists of them in lists."""

    name: str
    scope: str | None
    note: str
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    @property
    def operator(self) -> str:
        return self.name.split(".")[1]


def read(dump: Path, step: int, rank: int = 0) -> list[Launch]:
    """The launches of a step, in order. Task `tensor`."""
    folder = dump / f"step{step}" / f"rank{rank}"
    rows = pyarrow.parquet.read_table(folder / "ops.parquet").to_pylist()
    shards: dict[int, Any] = {}
    found: list[Launch] = []
    for place, row in enumerate(rows):
        if place == 0 or row["order"] != rows[place - 1]["order"]:
            found.append(Launch(row["op"], row["scope"], row["note"] or ""))
        if row["slot"] is None or GROUPED in found[-1].note:
            continue
        side, *at = row["slot"].split(".")
        put(found[-1].inputs if side == "input" else found[-1].outputs, [int(part) for part in at], value(row, rows, folder, shards))
    return found


def put(values: list[Any], at: list[int], what: Any) -> None:
    while len(values) <= at[0]:
        values.append([] if len(at) > 1 else None)
    if len(at) == 1:
        values[at[0]] = what
    else:
        put(values[at[0]], at[1:], what)


def value(row: dict[str, Any], rows: list[dict[str, Any]], folder: Path, shards: dict[int, Any]) -> Any:
    kind = row["kind"]
    if kind != "tensor":
        text = row["value"]
        return {"int": lambda: int(text), "float": lambda: float(text), "bool": lambda: text in ("true", "True"), "text": lambda: json.loads(text) if text[:1] == '"' else text}.get(kind, lambda: None)()
    shape, dtype = json.loads(row["shape"]), TYPES[row["dtype"].removeprefix("torch.")]
    if row["tensor"] is not None:
        shard = shards.setdefault(row["shard"], safe_open(folder / f"tensors-{row['shard']:05}.safetensors", "pt"))
        return shard.get_tensor(row["tensor"])
    data = row["data"] if row["data"] is not None or row["same_as"] is None else rows[row["same_as"]]["data"]
    assert data is not None or math.prod(shape) == 0, (row["op"], row["slot"], row["tensor_note"])
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


F = torch.nn.functional
Recompute = Callable[..., Any]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _reduced(function: Callable[..., torch.Tensor]) -> Recompute:
    """Over the dimensions given, all where there are none."""

    def compute(x: torch.Tensor, dims: Any, keep: bool = False, *_: Any) -> torch.Tensor:
        dims = dims if isinstance(dims, list) else [] if dims is None else [dims]
        return function(x, dims or list(range(x.dim())), keep)

    return compute


def _foreach(function: Recompute, lists: int = 1) -> Recompute:
    def compute(*given: Any) -> list[torch.Tensor]:
        of_each = list(zip(*given[:lists], strict=True))
        rest = given[lists:]
        return [function(*each, *(other[place] if isinstance(other, list) else other for other in rest)) for place, each in enumerate(of_each)]

    return compute


#: The computation of an operator, by its name without `Inplace`, in binary64: written from torch's documents, not from the simulated device.
RECOMPUTED: dict[str, Recompute] = {
    "Add": lambda a, b, alpha: a + alpha * b,
    "Adds": lambda a, b, alpha: a + alpha * b,
    "Sub": lambda a, b, alpha: a - alpha * b,
    "Subs": lambda a, b, alpha: a - alpha * b,
    "Mul": lambda a, b: a * b,
    "Muls": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Divs": lambda a, b: a / b,
    "Neg": torch.neg,
    "Exp": torch.exp,
    "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt,
    "Cos": torch.cos,
    "Sin": torch.sin,
    "Silu": lambda x: x / (1 + torch.exp(-x)),
    "Relu": lambda x: x.clamp(min=0),
    "PowTensorScalar": lambda x, power: x**power,
    "GeluV2": lambda x, kind: F.gelu(x, approximate="tanh" if kind else "none"),
    "Gelu": F.gelu,
    "Matmul": lambda a, b, *_: a @ b,
    "Mm": lambda a, b, *_: a @ b,
    "BatchMatMul": lambda a, b, *_: a @ b,
    "Addmm": lambda c, a, b, beta, alpha, *_: beta * c + alpha * (a @ b),
    "Softmax": lambda x, dim: torch.exp(x - x.amax(dim, True)) / torch.exp(x - x.amax(dim, True)).sum(dim, True),
    "LogSoftmax": lambda x, dim: x - x.logsumexp(dim, True),
    "SoftmaxBackward": lambda g, y, dim: (g - (g * y).sum(dim, True)) * y,
    "LogSoftmaxBackward": lambda g, y, dim: g - torch.exp(y) * g.sum(dim, True),
    "Embedding": lambda table, index: table[index.long()],
    "LayerNorm": lambda x, shape, w, b, eps: F.layer_norm(x, shape, w, b, eps),
    "ThresholdBackward": lambda g, x, threshold: torch.where(x > threshold, g, torch.zeros((), dtype=g.dtype)),
    "Mean": _reduced(lambda x, dims, keep: x.mean(dims, keep)),
    "MeanV2": _reduced(lambda x, dims, keep: x.mean(dims, keep)),
    "ReduceSum": _reduced(lambda x, dims, keep: x.sum(dims, keep)),
    "Cast": lambda x, _dtype: x,
    "Copy": lambda _x, source: source,
    "FillScalar": lambda x, number: torch.full_like(x, number),
    "Zero": torch.zeros_like,
    "One": torch.ones_like,
    "Cat": lambda tensors, dim: torch.cat(tensors, dim),
    "MaskedFillScalar": lambda x, mask, number: x.masked_fill(mask.bool(), number),
    "SWhere": lambda c, a, b: torch.where(c.bool(), a, b),
    "Arange": lambda first, last, by: torch.arange(first, last, by),
    "Triu": torch.triu,
    "Tril": torch.tril,
    "LtTensor": torch.lt,
    "LeTensor": torch.le,
    "GtTensor": torch.gt,
    "GeTensor": torch.ge,
    "EqScalar": torch.eq,
    "NeScalar": torch.ne,
    "Addcmul": lambda x, a, b, number: x + number * a * b,
    "Addcdiv": lambda x, a, b, number: x + number * a / b,
    "Lerps": lambda a, b, weight: a + weight * (b - a),
    "Convolution": lambda x, w, b, stride, padding, dilation, transposed, out, groups, *_: F.conv2d(x, w, b, stride, padding, dilation, groups),
    "Permute": lambda x, dims: x.permute(dims),
    "ForeachAddScalarV2": _foreach(lambda a, number: a + number),
    "ForeachAddScalarList": _foreach(lambda a, number: a + number),
    "ForeachMulScalarV2": _foreach(lambda a, number: a * number),
    "ForeachMulScalar": _foreach(lambda a, number: a * number),
    "ForeachAddListV2": _foreach(lambda a, b, alpha: a + alpha * b, 2),
    "ForeachMulList": _foreach(lambda a, b: a * b, 2),
    "ForeachDivList": _foreach(lambda a, b: a / b, 2),
    "ForeachDivScalarList": _foreach(lambda a, number: a / number),
    "ForeachSqrt": _foreach(torch.sqrt),
    "ForeachLerpScalar": _foreach(lambda a, b, weight: a + weight * (b - a), 2),
    "ForeachAddcmulScalarV2": _foreach(lambda x, a, b, number: x + number * a * b, 3),
    "ForeachAddcdivScalarV2": _foreach(lambda x, a, b, number: x + number * a / b, 3),
    "ForeachAddcdivScalarList": _foreach(lambda x, a, b, number: x + number * a / b, 3),
}

#: How far a result may be off, by the type it was rounded to.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 2e-2, torch.float64: 1e-12}


def check(launch: Launch) -> str | None:
    """None where the operator cannot be computed again; else empty, or what is wrong."""
    compute = RECOMPUTED.get(launch.operator.removeprefix("Inplace"))
    if compute is None:
        return None
    widen = lambda each: [widen(one) for one in each] if isinstance(each, list) else _wide(each) if isinstance(each, torch.Tensor) else each  # noqa: E731
    expected = compute(*widen(launch.inputs))
    found = launch.outputs[0] if launch.outputs else None
    if found is None:
        return f"{launch.name} has no output"
    pairs = zip(expected, found, strict=True) if isinstance(found, list) else [(expected, found)]
    for wanted, got in pairs:
        if list(wanted.shape) != list(got.shape):
            wanted = wanted.expand(got.shape) if wanted.dim() <= got.dim() else wanted
        if list(wanted.shape) != list(got.shape):
            return f"{launch.name}: shape {list(got.shape)}, {list(wanted.shape)} expected"
        bound = TOLERANCE.get(got.dtype, 0)
        # Against what the result would be without cancellation: the size of what went in.
        size = max([1e-30, *(float(each.abs().max()) for each in flat(widen(launch.inputs)) if each.is_floating_point() and each.numel())])
        scale = max(size, float(wanted.double().abs().nan_to_num(posinf=0).max()) if wanted.numel() else 0.0)
        if not torch.allclose(got.double(), wanted.double(), rtol=bound, atol=bound * scale, equal_nan=True):
            off = float((got.double() - wanted.double()).abs().max())
            return f"{launch.name}: off by {off:.3g} at a scale of {scale:.3g}"
    return ""


def flat(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    return [tensor for value in values for tensor in flat(value)] if isinstance(values, list) else []
