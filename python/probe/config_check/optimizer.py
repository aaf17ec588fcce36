"""Part `optimizer`: settings, parameters, gradient clipping and the number of calls per step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probe.config_check import secrets

# Attributes in which optimizer wrappers (mixed precision, sharding) keep the inner optimizer.
_INNER = ("optimizer", "_optimizer", "base_optimizer", "optim", "inner_optimizer")


def collect(optimizer: Any, model: Any) -> dict[str, Any]:
    """Returns the optimizer as in `optimizer.json`, without what is watched during the steps."""
    chain = [optimizer]
    while not hasattr(chain[-1], "param_groups") or not hasattr(chain[-1], "state"):
        inner = next((getattr(chain[-1], name) for name in _INNER if hasattr(chain[-1], name)), None)
        if inner is None or inner in chain:
            break
        chain.append(inner)
    innermost = chain[-1]
    names = {id(parameter): name for name, parameter in model.named_parameters()} if model is not None else {}
    found: dict[str, Any] = {
        "class": type(innermost).__name__,
        "groups": [_group(group, names) for group in innermost.param_groups],
        "state_dtypes": _state_dtypes(innermost),
    }
    if len(chain) > 1:
        found["wrappers"] = [type(item).__name__ for item in chain[:-1]]
    return found


def trains(optimizer: Any, model: Any) -> bool:
    """Returns true if the optimizer has a parameter of the model."""
    return not _of_model(model).isdisjoint(_trained([optimizer]))


def outside(optimizers: Iterable[Any], model: Any) -> int:
    """Number of parameters that the optimizers train and the model does not have. Zero if they train none of the
    model's at all: then some wrapper trains copies of them."""
    own, trained = _of_model(model), _trained(optimizers)
    return len(trained - own) if trained & own else 0


def _of_model(model: Any) -> set[int]:
    return {id(parameter) for parameter in model.parameters()}


def _trained(optimizers: Iterable[Any]) -> set[int]:
    return {id(parameter) for found in optimizers for group in found.param_groups for parameter in group["params"]}


def _group(group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    return {
        "options": {name: _option(value) for name, value in group.items() if name not in ("params", "param_names")},
        "parameters": [names.get(id(parameter), "?") for parameter in group["params"]],
    }


def _option(value: Any) -> Any:
    # Rates may be tensors, for graphs.
    if getattr(value, "numel", None) is not None and value.numel() == 1:
        return secrets.clean(value.item())
    return secrets.clean(value)


def _state_dtypes(optimizer: Any) -> dict[str, str]:
    dtypes: dict[str, set[str]] = {}
    for state in list(optimizer.state.values()):
        if isinstance(state, dict):
            for name, value in state.items():
                dtype = getattr(value, "dtype", None)
                if dtype is not None:
                    dtypes.setdefault(str(name), set()).add(str(dtype).removeprefix("torch."))
    return {name: ", ".join(sorted(found)) for name, found in dtypes.items()}
