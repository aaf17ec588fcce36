"""Which lower precision a result is equal to: the call again, with inputs or arithmetic as that precision has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from probe.replay import evaluate
from probe.replay.errors import Reference
from probe.replay.recorded import Call

#: A precision explains a result that is this many times nearer to what it gives than to float64: the 3 bits of a fault.
_NEARER = 8.0

Results = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Precision:
    """A way to compute less exactly."""

    #: What the result is equal to.
    words: str
    compute: Callable[[Call], Results]


def explanation(call: Call, path: str, reference: Reference) -> str | None:
    """Returns what the recorded result is equal to, if that is much nearer to it than float64 is; the nearest if several are."""
    recorded = evaluate.widened(call.results[path])
    scale = reference.scales[path].norm()
    own = _distance(recorded, reference.values[path])
    found: list[tuple[float, str]] = []
    for precision in _PRECISIONS:
        try:
            results = precision.compute(call)
        except Exception:
            # A function that is not defined in this type cannot have been computed in it.
            continue
        if path in results and results[path].shape == recorded.shape:
            found.append((_distance(recorded, evaluate.widened(results[path])), precision.words))
    nearest = min(found, default=(own, ""))
    return nearest[1] if nearest[0] * _NEARER < own and bool(scale > 0) else None


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return torch.nan_to_num(one - other, nan=torch.inf, posinf=torch.inf, neginf=torch.inf).norm().item()


def _kept(bits: int) -> Callable[[Call], Results]:
    """The call in float64 on inputs that keep this many bits of their fraction, rounded to nearest."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.float64:
            return tensor
        fraction, exponent = torch.frexp(tensor)
        return torch.ldexp(torch.round(fraction * 2.0 ** (bits + 1)), exponent - (bits + 1))

    def compute(call: Call) -> Results:
        # A summand, such as a bias, is no operand of the products and keeps its bits.
        summand = {"linear": 2, "addmm": 0, "baddbmm": 0, "addmv": 0}.get(call.base, 2 if "conv" in call.base else None)
        if summand is None or len(call.args) <= summand or call.is_backward:
            return evaluate.reference(call, keep)
        args = [each if place == summand else evaluate.mapped(lambda tensor: keep(evaluate.widened(tensor)), each, {}) for place, each in enumerate(call.args)]
        return evaluate.reference(replace(call, args=args))

    return compute


def _in_type(dtype: torch.dtype) -> Callable[[Call], Results]:
    """The call in this type on the host, from inputs to result."""
    return lambda call: evaluate.here(call, prepared=lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _flushed(call: Call) -> Results:
    """The call in float64 where numbers below the least normal float32 are zero, read and written."""
    least = torch.finfo(torch.float32).tiny

    def flush(tensor: torch.Tensor) -> torch.Tensor:
        return torch.where(tensor.abs() < least, 0.0, tensor) if tensor.dtype == torch.float64 else tensor

    return {path: flush(result) for path, result in evaluate.reference(call, flush).items()}


def _other_gelu(call: Call) -> Results:
    """The other formula of GELU: by tanh for erf, or the reverse."""
    if "gelu" not in call.base:
        return {}
    now = call.kwargs.get("approximate", "none")
    return evaluate.reference(replace(call, kwargs={**call.kwargs, "approximate": "tanh" if now == "none" else "none"}))


_PRECISIONS = (
    Precision("the function of inputs rounded to 10 bits (TF32)", _kept(10)),
    Precision("the function of inputs rounded to 11 bits (HF32)", _kept(11)),
    Precision("the function of inputs rounded to 7 bits (bfloat16)", _kept(7)),
    Precision("the function computed in bfloat16", _in_type(torch.bfloat16)),
    Precision("the function computed in float16", _in_type(torch.float16)),
    Precision("the function with numbers below the least normal one flushed to zero", _flushed),
    Precision("the other formula of GELU (tanh for erf, or the reverse)", _other_gelu),
)
