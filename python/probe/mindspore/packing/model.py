"""Parts `model` and `weights`: cells, parameters and buffers of a network by name, and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindspore import nn
from probe import _core
from probe.config_check import secrets
from probe.config_check.structure import NamedTensor
from probe.mindspore import arrays

_MAX_EXTRA = 500
#: Parameters that PyTorch keeps as buffers.
_BUFFERS = ("moving_mean", "moving_variance")


def tensors(net: Any) -> Iterator[NamedTensor]:
    """Parameters, then buffers, under every name they have."""
    buffers = []
    for prefix, cell in net.cells_and_names():
        for name, parameter in cell.parameters_and_names(prefix, expand=False):
            is_buffer = name.rpartition(".")[2] in _BUFFERS and not parameter.requires_grad
            item = NamedTensor(name, "buffer" if is_buffer else "parameter", parameter)
            if is_buffer:
                buffers.append(item)
            else:
                yield item
    yield from buffers
    for name, buffer in net.named_buffers() if hasattr(net, "named_buffers") else ():
        yield NamedTensor(name, "buffer", buffer)


def dtype_of(tensor: Any) -> str:
    """Returns an element type as torch names it: `float32`."""
    return str(tensor.dtype).lower()


def collect(net: Any) -> dict[str, Any]:
    """Returns the network as in `model.json`."""
    own = set(vars(nn.Cell()))
    listed = list(tensors(net))
    names: dict[int, list[str]] = {}
    for item in listed:
        names.setdefault(id(item.tensor), []).append(item.name)
    return {
        "modules": [
            {"name": name, "class": type(cell).__name__, "training": bool(cell.training), "extra": _extra(cell, own)}
            for name, cell in net.cells_and_names()
        ],
        "tensors": [
            {
                "name": item.name,
                "kind": item.kind,
                "dtype": dtype_of(item.tensor),
                "shape": [int(size) for size in item.tensor.shape],
                "requires_grad": item.kind == "parameter" and bool(item.tensor.requires_grad),
            }
            for item in listed
        ],
        "tied": [sorted(group) for group in names.values() if len(group) > 1],
    }


def _extra(cell: Any, own: set[str]) -> str:
    """Settings of a cell as text, `eps=1e-05, momentum=0.1`: attributes that are numbers, texts or lists of numbers, and that
    not every cell has."""
    plain = (bool, int, float, str)
    found = []
    for name, value in vars(cell).items():
        is_list = isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value)
        if name not in own and not name.startswith("_") and (isinstance(value, plain) or is_list):
            # 1 - 0.9 is 0.09999999999999998.
            found.append(f"{name}={float(f'{value:.12g}') if type(value) is float else value}")
    return secrets.text(", ".join(found))[:_MAX_EXTRA]


class Digests:
    """Identity and statistics of tensors, computed by the compiled core."""

    def __init__(self, *, values: bool) -> None:
        """`values`: also what tells how two tensors differ."""
        self._core = _core.Digester(sketch=values, unordered=values, casts=values, arrays=arrays)

    def tensors(self, found: list[Any]) -> list[dict[str, Any]]:
        """Returns `hash`, `statistics` and so on for each tensor; for an unreadable one, a `note` with the reason."""
        held = [arrays.of(tensor) for tensor in found]
        readable = iter(self._core.tensors([array for array in held if isinstance(array, arrays.Tensor)]))
        results = (next(readable) if isinstance(array, arrays.Tensor) else array for array in held)
        return [result if isinstance(result, dict) else {"note": result} for result in results]

    def samples(self, tensor: Any) -> list[str] | None:
        """Hash of each slice along the first dimension."""
        held = arrays.of(tensor)
        return self._core.samples(held) if isinstance(held, arrays.Tensor) else None


def weights(net: Any, step: int) -> dict[str, Any]:
    """Returns the values before a step as in `weights.json`, tied ones once."""
    listed = list({id(item.tensor): item for item in reversed(list(tensors(net)))}.values())[::-1]
    measured = Digests(values=True).tensors([item.tensor for item in listed])
    return {
        "step": step,
        "tensors": [
            {
                "name": item.name,
                "kind": item.kind,
                "dtype": dtype_of(item.tensor),
                "shape": [int(size) for size in item.tensor.shape],
                **found,
            }
            for item, found in zip(listed, measured)
        ],
    }


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the leaves of a call's arguments as in `dataset.json`."""
    digests = Digests(values=False)
    found = []
    for path, value in [leaf for root, value in (("args", args), ("kwargs", kwargs)) for leaf in _leaves(root, value)]:
        if arrays.tensors(value):
            (measured,) = digests.tensors([value])
            samples = digests.samples(value) if "hash" in measured else None
            shape = [int(size) for size in value.shape]
            entry = {"path": path, "kind": "tensor", "dtype": dtype_of(value), "shape": shape, **measured}
            found.append(entry if samples is None else {**entry, "samples": samples})
        elif value is None or isinstance(value, (bool, int, float, str)):
            found.append({"path": path, "kind": "value", "value": secrets.value_of(path, value)})
        else:
            found.append({"path": path, "kind": "object", "class": type(value).__name__})
    return found


def _leaves(path: str, value: Any, depth: int = 12) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(value, (list, tuple, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(f"{path}.{secrets.text(str(key))}", item, depth - 1)
    else:
        yield path, value
