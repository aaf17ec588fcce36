"""Quantises the weights of a model while a pass runs, as inference engines do: `probe rollout --quantized` holds such a pass against the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["quantized"]

#: Largest number of each format; integers are symmetric unless they have an offset.
LARGEST = {"fp8": 448.0, "int8": 127.0, "int4": 7.0}
#: Layers that engines join, so that they share what is per tensor.
JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@contextmanager
def quantized(
    model: Any,
    weights: str | None = "fp8",
    activations: str | None = None,
    *,
    group: int = 0,
    per_tensor: bool = False,
    offset: bool = False,
    skip: Sequence[str] = ("lm_head", "embed", "gate", "router"),
) -> Iterator[None]:
    """Computes linear layers with quantised numbers inside of the block, and restores the model afterwards.

    `weights` and `activations` are `fp8` (e4m3), `int8`, `int4` or None. Weights have a scale for each row, for each `group` of inputs, or one for all
    (`per_tensor`, which joined layers share), and with `offset` a zero point, as AWQ has it; activations have a scale for each token, taken from its largest number. Give what
    the engine uses: another choice is another error. Layers named as in `skip` are left alone, as engines leave them; `gate_proj` is no `gate`.

    Raises ValueError for formats that are not known, and for a model without linear layers.
    """
    for name in (weights, activations):
        if name is not None and name not in LARGEST:
            raise ValueError(f"unknown format {name!r}; choose from {', '.join(LARGEST)}")
    layers = {path: module for path, module in model.named_modules() if _is_linear(module) and path.rpartition(".")[2] not in skip}
    if not layers:
        raise ValueError("the model has no linear layers that are not skipped")
    hooks, kept = [], []
    try:
        sizes = {path: _largest(path, layers) for path in layers} if per_tensor else {}
        for path, layer in layers.items():
            if weights is not None:
                kept.append((layer.weight, layer.weight.data))
                layer.weight.data = _rounded(layer.weight.data, weights, group, offset, sizes.get(path))
            if activations is not None:
                hooks.append(layer.register_forward_pre_hook(lambda _, args: (_rounded(args[0], activations), *args[1:])))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, data in kept:
            parameter.data = data


def _is_linear(module: Any) -> bool:
    """True for modules that multiply with a matrix `weight`, whatever their class: parallel layers are no `torch.nn.Linear`."""
    weight = getattr(module, "weight", None)
    return "linear" in type(module).__name__.lower() and getattr(weight, "ndim", 0) == 2


def _largest(path: str, layers: dict[str, Any]) -> float:
    """The largest weight of a layer and of those that engines join with it."""
    before, _, name = path.rpartition(".")
    names = next((names for names in JOINED if name in names), (name,))
    joined = [layers[other] for other in (f"{before}.{name}" if before else name for name in names) if other in layers]
    return max(float(layer.weight.data.float().abs().max()) for layer in joined)


def _rounded(values: Any, name: str, group: int = 0, offset: bool = False, largest: float | None = None) -> Any:
    """The values as numbers of the format; `largest` is that of all of them."""
    import torch

    wide = values.float()
    rows = wide.unflatten(-1, (-1, group)) if group and wide.shape[-1] % group == 0 else wide
    low = rows.amin(-1, keepdim=True) if offset else torch.zeros((), device=wide.device)
    size = (rows - low).abs().amax(-1, keepdim=True) if largest is None else torch.tensor(largest, device=wide.device)
    scale = size.clamp_min(1e-12) / (2 * LARGEST[name] + 1 if offset else LARGEST[name])
    scaled = (rows - low) / scale
    near = scaled.to(torch.float8_e4m3fn).float() if name == "fp8" else scaled.round()
    return (near * scale + low).reshape(wide.shape).to(values.dtype)
