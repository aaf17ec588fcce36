"""Part `model`: modules, parameters and buffers by name, in order. No values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from probe.config_check import flags, secrets, shards

_MAX_EXTRA = 500


class NamedTensor(NamedTuple):
    """A parameter or buffer of a model."""

    name: str
    # `parameter`, `buffer`, or `temporary` for a buffer outside the state dict.
    kind: str
    tensor: Any


def tensors(model: Any) -> Iterator[NamedTensor]:
    """Parameters, then buffers, under every name they have."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield NamedTensor(name, "parameter", parameter)
    for prefix, module in model.named_modules(remove_duplicate=False):
        outside = getattr(module, "_non_persistent_buffers_set", ())
        for name, buffer in module._buffers.items():
            if buffer is not None:
                full = f"{prefix}.{name}" if prefix else name
                yield NamedTensor(full, "temporary" if name in outside else "buffer", buffer)


def collect(model: Any) -> dict[str, Any]:
    """Returns the model as in `model.json`."""
    modules = [
        {"name": name, "class": type(module).__name__, "training": bool(module.training), "extra": _extra(module)}
        for name, module in model.named_modules()
    ]
    listed = list(tensors(model))
    names: dict[int, list[str]] = {}
    for item in listed:
        names.setdefault(id(item.tensor), []).append(item.name)
    found: dict[str, Any] = {
        "modules": modules,
        "tensors": [
            {
                "name": item.name,
                "kind": item.kind,
                "dtype": str(item.tensor.dtype).removeprefix("torch."),
                "shape": _shape(item.tensor),
                "requires_grad": bool(item.tensor.requires_grad),
            }
            for item in listed
        ],
        "tied": [sorted(group) for group in names.values() if len(group) > 1],
    }
    compiled = flags.compiler(model)
    if compiled:
        found["compiled"] = compiled
    return found


def _extra(module: Any) -> str:
    # Written by users, who may not expect a call before everything is built.
    try:
        return secrets.text(str(module.extra_repr()))[:_MAX_EXTRA]
    except Exception:
        return ""


def _shape(tensor: Any) -> list[int]:
    # Lazy parameters have no shape yet.
    try:
        return shards.whole_shape(tensor)
    except RuntimeError:
        return []
