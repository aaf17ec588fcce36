"""How another device rounds: another order of summation, another precision inside, a shorter mantissa in products.

Nothing here is drawn at random. Every result is one that a correct kernel may return.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

aten = torch.ops.aten
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

#: `double`: computes in float64, or in float32 for shorter types, and rounds once.
#: `chunks`: sums up pieces from the last to the first, in float32, and reverses the order of other reductions.
STYLES = ("double", "chunks")
PRODUCTS = """mm addmm bmm baddbmm convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward""".split()


def cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The CPU's kernel itself: no mode, no autograd, no autocast sees the call."""
    return op.redispatch(CPU, *args, **kwargs)


def number(value: Any, beside: torch.Tensor) -> Any:
    """A number in place of a tensor, which comes unwrapped: as a tensor that leaves the type of the one beside it."""
    if not isinstance(value, (int, float)):
        return value
    dtype = torch.float64 if isinstance(value, float) else torch.int64
    if (
        isinstance(beside, torch.Tensor)
        and not beside.dim()
        and (beside.dtype.is_floating_point or dtype == torch.int64)
    ):
        dtype = beside.dtype
    elif isinstance(beside, torch.Tensor) and not beside.dtype.is_floating_point and dtype == torch.float64:
        dtype = torch.float32
    return cpu(aten.scalar_tensor.default, value, dtype=dtype)


def flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield value


def mapped(change: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, v) for v in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def clone(t: torch.Tensor) -> torch.Tensor:
    return cpu(aten.clone.default, t)


def cast(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return t if t.dtype == dtype else cpu(aten._to_copy.default, t, dtype=dtype)


def write(to: torch.Tensor, value: torch.Tensor) -> None:
    """Writes in the layout that is there; the value may have any float type."""
    cpu(aten.copy_.default, to, value)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Norm of the difference over the norm of `a`; infinite where one side alone is not finite."""
    if not a.numel() or not a.dtype.is_floating_point:
        return 0.0
    x, y = cast(a, torch.float64), cast(b, torch.float64)
    gap = float(cpu(aten.linalg_vector_norm.default, cpu(aten.sub.Tensor, x, y)))
    norm = float(cpu(aten.linalg_vector_norm.default, x))
    if not math.isfinite(gap):
        return math.inf if math.isfinite(norm) else 0.0
    return gap / norm if norm else (math.inf if gap else 0.0)


def is_inplace(op: Any) -> bool:
    return op._schema.is_mutable


def tensors(op: Any, args: tuple[Any, ...], result: Any) -> list[torch.Tensor]:
    """The floats that a call wrote or returned."""
    if is_inplace(op):
        found = [
            value
            for argument, value in zip(op._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
    else:
        found = [result]
    return [t for t in flat(found) if isinstance(t, torch.Tensor) and t.dtype.is_floating_point and t.numel()]


def inputs_kept(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as they are before the call, where it writes into them."""
    return mapped(clone, args) if is_inplace(op) or "batch_norm" in op._schema.name else args


def shortened(t: torch.Tensor, bits: int) -> torch.Tensor:
    """Float32 with a mantissa of `bits` bits, rounded to nearest, ties to even."""
    if t.dtype != torch.float32:
        return t
    drop = 23 - bits
    words = cpu(aten.view.dtype, cpu(aten.clone.default, t, memory_format=torch.contiguous_format), torch.int32)
    odd = words.bitwise_right_shift(drop).bitwise_and_(1)
    return words.add(odd).add_((1 << (drop - 1)) - 1).bitwise_and_(-(1 << drop)).view(torch.float32)


def pieces(length: int) -> list[slice]:
    """The summed dimension in pieces, the last first; at least four elements each."""
    count = max(1, min(8, length // 4))
    edges = [length * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)][::-1]


def product(a: torch.Tensor, b: torch.Tensor, style: str) -> torch.Tensor:
    """Batched `a @ b` of float32 or float64 matrices."""
    multiply = aten.bmm.default if a.dim() == 3 else aten.mm.default
    if style == "double":
        return cpu(multiply, cast(a, torch.float64), cast(b, torch.float64))
    total = None
    for piece in pieces(a.shape[-1]):
        part = cpu(multiply, a[..., piece], b[..., piece, :])
        total = part if total is None else total.add_(part)
    return total if total is not None else cpu(multiply, a, b)


def attention(
    style: str, args: tuple[Any, ...], kwargs: dict[str, Any], short: Any, inner: torch.dtype
) -> list[torch.Tensor]:
    """Output and logarithm of the sum of exponentials; probabilities are rounded before they multiply values."""
    q, k, v = args[:3]
    causal = args[4] if len(args) > 4 else kwargs.get("is_causal", False)
    scores = scored(style, q, k, causal, kwargs, short)
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, torch.zeros_like(top), top)
    weights = cpu(aten.exp.default, scores.sub(top))
    total = weights.sum(-1, keepdim=True) if style != "chunks" else weights.flip(-1).sum(-1, keepdim=True)
    b, h, n, _ = q.shape
    mixed = product(short(rounded(weights, inner)).flatten(0, 1), short(cast(v, weights.dtype)).flatten(0, 1), style)
    out = cast(mixed, torch.float64).view(b, h, n, -1).div(total)
    return [out, total.log().add(top).squeeze(-1)]


def rounded(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values that `dtype` can hold, in the type of `t`."""
    return cast(cast(t, dtype), t.dtype) if dtype in (torch.bfloat16, torch.float16) else t


def scored(style: str, q: Any, k: Any, causal: bool, kwargs: dict[str, Any], short: Any) -> torch.Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    b, h, n, width = q.shape
    scale = kwargs.get("scale") or 1.0 / math.sqrt(width)
    q2, k2 = (short(cast(t, wide)).flatten(0, 1) for t in (q, k))
    scores = cast(product(q2, k2.transpose(-1, -2), style), wide).view(b, h, n, -1).mul(scale)
    mask = kwargs.get("attn_mask")
    if mask is not None:
        scores = scores.add(cast(mask, wide))
    if causal:
        hidden = torch.ones(n, k.shape[2], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores


def attention_backward(
    style: str, args: tuple[Any, ...], kwargs: dict[str, Any], short: Any, inner: torch.dtype
) -> list[torch.Tensor]:
    grad, q, k, v, out, sums, _, causal = args[:8]
    wide = torch.float32
    scores = scored(style, q, k, causal, kwargs, short)
    weights = cpu(aten.exp.default, scores.sub(cast(sums, wide).unsqueeze(-1)))
    b, h, n, width = q.shape
    scale = kwargs.get("scale") or 1.0 / math.sqrt(width)
    g2, q2, k2, v2 = (short(cast(t, wide)).flatten(0, 1) for t in (grad, q, k, v))
    w2 = short(rounded(weights, inner)).flatten(0, 1)
    grad_v = product(w2.transpose(-1, -2), g2, style)
    grad_w = cast(product(g2, v2.transpose(-1, -2), style), wide).view_as(weights)
    delta = cast(grad, wide).mul(cast(out, wide)).sum(-1, keepdim=True)
    grad_s = short(rounded(weights.mul(grad_w.sub(delta)), inner)).flatten(0, 1)
    grad_q = product(grad_s, k2, style).mul(scale)
    grad_k = product(grad_s.transpose(-1, -2), q2, style).mul(scale)
    return [
        t.view(b, h, -1, width) if t.shape[-1] == width else t.view(b, h, t.shape[1], -1)
        for t in (grad_q, grad_k, grad_v)
    ]


def convolved(style: str, args: tuple[Any, ...], short: Any) -> torch.Tensor:
    x, w, bias, stride, padding, dilation, transposed, out_padding, groups = args
    wide = torch.float64 if style == "double" else torch.float32
    x, w = short(cast(x, torch.float32)), short(cast(w, torch.float32))
    rest = (stride, padding, dilation, transposed, out_padding, groups)
    if style != "chunks" or groups != 1 or transposed:
        total = cpu(aten.convolution.default, cast(x, wide), cast(w, wide), None, *rest)
    else:
        total = None
        for piece in pieces(x.shape[1]):
            part = cpu(aten.convolution.default, x[:, piece].contiguous(), w[:, piece].contiguous(), None, *rest)
            total = part if total is None else total.add_(part)
    if bias is not None:
        total = total.add(cast(bias, total.dtype).view(1, -1, *[1] * (total.dim() - 2)))
    return total


def convolved_backward(style: str, args: tuple[Any, ...], short: Any) -> list[torch.Tensor]:
    grad, x, w, bias, stride, padding, dilation, transposed, out_padding, groups, wanted = args
    wide = torch.float64 if style == "double" else torch.float32
    g2, x2, w2 = (short(cast(t, torch.float32)) for t in (grad, x, w))
    g2, x2, w2 = (cast(t, wide) for t in (g2, x2, w2))
    rest = (stride, padding, dilation, transposed, out_padding, groups)
    split = style == "chunks" and groups == 1 and not transposed

    def part(g: Any, x: Any, w: Any, which: list[bool]) -> Any:
        return cpu(
            aten.convolution_backward.default, g.contiguous(), x.contiguous(), w.contiguous(), None, *rest, which
        )

    results = []
    if wanted[0]:
        parts = pieces(g2.shape[1]) if split else [slice(None)]
        results.append(summed([part(g2[:, p], x2, w2[p] if split else w2, [True, False, False])[0] for p in parts]))
    if wanted[1]:
        parts = [slice(i, i + 1) for i in range(x2.shape[0])][::-1] if split else [slice(None)]
        results.append(summed([part(g2[p], x2[p], w2, [False, True, False])[1] for p in parts]))
    if wanted[2]:
        dims = [0, *range(2, grad.dim())]
        results.append(cast(grad, wide).flip(dims).sum(dims))
    return results


def summed(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total.add(part)
    return total


def reversed_order(name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """The same reduction from the last element to the first; None where that is not written down."""
    x = args[0]
    if name in ("sum", "mean"):
        return [cpu(op, x.flip(list(range(x.dim()))), *args[1:], **kwargs)]
    if name in ("sum.dim_IntList", "mean.dim"):
        dims = args[1] if args[1] else list(range(x.dim()))
        return [cpu(op, x.flip(list(dims)), *args[1:], **kwargs)]
    if name in ("_softmax", "_log_softmax"):
        return [cpu(op, x.flip([args[1]]), *args[1:], **kwargs).flip([args[1]])]
    if name == "native_layer_norm" and len(args[1]) == 1:
        weight, bias = (None if t is None else t.flip([0]) for t in args[2:4])
        out, mean, rstd = cpu(op, x.flip([-1]), args[1], weight, bias, args[4])
        return [out.flip([-1]), mean, rstd]
    return None


def computed(
    style: str, bits: int | None, name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The results of this op on the other device, in any float type that holds them."""

    def short(t: torch.Tensor) -> torch.Tensor:
        return shortened(t, bits) if bits is not None else t

    if name in PRODUCTS:
        double = any(isinstance(t, torch.Tensor) and t.dtype == torch.float64 for t in args)
        if not double:
            if name == "_scaled_dot_product_flash_attention_for_cpu":
                return attention(style, args, kwargs, short, args[0].dtype)
            if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
                return attention_backward(style, args, kwargs, short, args[1].dtype)
            if name == "convolution":
                return [convolved(style, args, short)]
            if name == "convolution_backward":
                return convolved_backward(style, args, short)
            a, b = (short(cast(t, torch.float32)) for t in args[-2:])
            total = product(a, b, style)
            if name in ("addmm", "baddbmm"):
                alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
                total = cast(args[0], total.dtype).mul(beta).add(total, alpha=alpha)
            return [total]
    wide = torch.float64
    if style == "chunks":
        widened = tuple(
            mapped(lambda t: cast(t, torch.float32) if t.dtype in (torch.bfloat16, torch.float16) else t, a)
            for a in args
        )
        if (found := reversed_order(name, op, widened, kwargs)) is not None:
            return found
        if any(isinstance(t, torch.Tensor) and t.dtype in (torch.bfloat16, torch.float16) for t in flat(args)):
            wide = torch.float32

    def up(t: torch.Tensor) -> torch.Tensor:
        return cast(t, wide) if t.dtype.is_floating_point else t

    # The gradient of a softmax is told the type of what was given to it.
    args = tuple(wide if isinstance(a, torch.dtype) and a.is_floating_point else a for a in args)
    return tensors(op, args := mapped(up, args), cpu(op, *args, **{k: mapped(up, v) for k, v in kwargs.items()}))


def round_otherwise(
    style: str,
    bits: int | None,
    name: str,
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    parts: list[torch.Tensor],
) -> None:
    """Overwrites the results of a call with what the other device computes from the same arguments."""
    if kwargs.get("dtype") is not None:
        kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
    results = [t for t in computed(style, bits, name, op, args, kwargs) if t.numel()]
    if len(results) != len(parts):
        raise AssertionError(f"{name}: {len(results)} results for {len(parts)}")
    for part, value in zip(parts, results, strict=True):
        if part.shape != value.shape:
            raise AssertionError(f"{name}: {tuple(value.shape)} for {tuple(part.shape)}")
        write(part, value)
