"""Faults that a program has rather than a device: another argument, another type, an op more or less."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def apply(model: nn.Module, edit: dict[str, Any]) -> None:
    """Changes the module `edit["module"]` of the model."""
    module: Any = model.get_submodule(edit["module"])
    what = edit["what"]
    if what == "argument":
        setattr(module, edit["name"], edit["value"])
    elif what == "extra op":
        module.register_forward_hook(
            lambda _m, _i, out: changed(out, torch.atan)
        )  # the op after may work in place: no need of the result
    elif what == "dtype":
        inner = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            short = [a.to(torch.bfloat16) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
            with torch.autocast("cpu", torch.bfloat16):
                return inner(*short, **kwargs).to(args[0].dtype)

        module.forward = forward
    elif what == "missing op":
        module.forward = lambda x, *_args, **_kwargs: x
    else:
        raise ValueError(what)


def possible(model: nn.Module) -> list[dict[str, Any]]:
    """Every edit that fits a module of this model."""
    found: list[dict[str, Any]] = []
    for path, module in model.named_modules():
        if not path or any(module.children()):
            continue
        kind = type(module).__name__
        small = next(
            (name for name in ("eps", "variance_epsilon") if isinstance(getattr(module, name, None), float)), None
        )
        if small and "Norm" in kind:
            # Some models have 1e-3 as it is.
            other = 1e-3 if getattr(module, small) < 1e-3 else 1e-2
            found.append({"module": path, "what": "argument", "name": small, "value": other})
        if isinstance(module, nn.Linear):
            found.append({"module": path, "what": "dtype"})
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            found.append({"module": path, "what": "extra op"})
        if any(word in kind.lower() for word in ("gelu", "silu", "relu", "hardswish")):
            found.append({"module": path, "what": "missing op"})
    return found


def changed(out: Any, function: Any) -> Any:
    return function(out) if isinstance(out, torch.Tensor) else (function(out[0]), *out[1:])
