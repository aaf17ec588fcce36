"""Modules of torch, rebuilt from recorded parameters.

A dump has a module's parameters but not its options. Those that shapes tell are derived, the others are torch's defaults; a module
whose recorded results these cannot be is not replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from probe.replay.recorded import NotReplayed, leaves

if TYPE_CHECKING:
    from probe.replay.recorded import Call

Tensors = dict[str, torch.Tensor]


def run(call: Call, args: list[Any], kwargs: dict[str, Any], parameters: Tensors, gradients: Tensors | None) -> Tensors:
    """Returns the results of a module's forward or backward call by path. Raises NotReplayed for a class that is not known."""
    compute = _FORWARD.get(call.base)
    if compute is None:
        raise NotReplayed(f"modules of class {call.base} cannot be rebuilt from a dump; record level mix or api and replay its functions")
    if kwargs or not args or not isinstance(args[0], torch.Tensor):
        raise NotReplayed("it was called with more than a tensor")
    given: torch.Tensor = args[0]
    if gradients is None:
        with torch.no_grad():
            return {"0": compute(given, parameters)}
    if call.name.split(".")[-2] != "backward" or list(gradients) != ["0"]:
        raise NotReplayed("its gradients cannot be told apart")
    if not given.is_floating_point():
        raise NotReplayed("no gradient flows to integers")
    with torch.enable_grad():
        result = compute(given.requires_grad_(), parameters)
        (found,) = torch.autograd.grad(result, [given], gradients["0"].to(result.dtype))
    return leaves([found])


def _linear(given: torch.Tensor, of: Tensors) -> torch.Tensor:
    return functional.linear(given, of["weight"], of.get("bias"))


def _layer_norm(given: torch.Tensor, of: Tensors) -> torch.Tensor:
    if "weight" not in of:
        raise NotReplayed("the sizes over which it normalises were not recorded")
    return functional.layer_norm(given, of["weight"].shape, of["weight"], of.get("bias"))


def _embedding(given: torch.Tensor, of: Tensors) -> torch.Tensor:
    return functional.embedding(given, of["weight"])


def _activation(function: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor, Tensors], torch.Tensor]:
    return lambda given, of: function(given)


_FORWARD: dict[str, Callable[[torch.Tensor, Tensors], torch.Tensor]] = {
    "Linear": _linear,
    "LayerNorm": _layer_norm,
    "Embedding": _embedding,
    "GELU": _activation(functional.gelu),
    "ReLU": _activation(functional.relu),
    "SiLU": _activation(functional.silu),
    "Sigmoid": _activation(torch.sigmoid),
    "Tanh": _activation(torch.tanh),
    "Softplus": _activation(functional.softplus),
    "Hardswish": _activation(functional.hardswish),
    "Mish": _activation(functional.mish),
}
