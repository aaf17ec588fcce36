"""Tensors that are not plain strided memory: their components, or facts about them that need no read."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from probe.private.guards import without_dispatch

#: Facts about a tensor: `parts` (suffix of the slot -> plain tensor), or `dtype`, `shape` and `device` if there is
#: nothing to read; `note` says what it is, `placement` how it is spread over ranks.
Description = dict[str, Any]


def parts(tensor: torch.Tensor) -> Description:
    """Describes `tensor`. Runs no recorded op and changes nothing."""
    with without_dispatch():
        return _describe(tensor)


def _describe(tensor: torch.Tensor) -> Description:
    kind = type(tensor)
    if kind.__name__ == "DTensor" and hasattr(tensor, "_local_tensor"):
        return {"parts": {"": _plain(_arrived(tensor._local_tensor))}, "placement": _placement(tensor), "note": "local shard"}
    if kind.__name__ == "AsyncCollectiveTensor":
        return {"parts": {"": _plain(_arrived(tensor))}}
    if kind.__name__ in ("FakeTensor", "FunctionalTensor") or tensor.device.type == "meta":
        return _facts(tensor, kind.__name__)
    if is_functorch_wrapped_tensor(tensor):
        inner = tensor
        while is_functorch_wrapped_tensor(inner):
            inner = get_unwrapped(inner)
        return {"parts": {"": inner}, "note": "inside a function transform: the whole batch"}
    if tensor.layout in (torch.sparse_coo,):
        return {"parts": {"indices": tensor._indices(), "values": tensor._values()}, "note": "sparse_coo"}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        names = {"crow_indices": tensor.crow_indices(), "col_indices": tensor.col_indices(), "values": tensor.values()}
        return {"parts": names, "note": str(tensor.layout).removeprefix("torch.")}
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        names = {"ccol_indices": tensor.ccol_indices(), "row_indices": tensor.row_indices(), "values": tensor.values()}
        return {"parts": names, "note": str(tensor.layout).removeprefix("torch.")}
    if tensor.is_nested:
        if hasattr(tensor, "_values") and hasattr(tensor, "_offsets"):
            return {"parts": {"values": _plain(tensor._values), "offsets": _plain(tensor._offsets)}, "note": "nested (jagged)"}
        return {"parts": {"values": tensor.values()}, "note": "nested"}
    if tensor.is_quantized:
        return {"parts": {"": tensor.int_repr()}, "note": _quantisation(tensor)}
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if tensor.is_conj() or tensor.is_neg():
            # The bits in memory have the other sign; a copy has the values.
            return {"parts": {"": tensor.resolve_conj().resolve_neg()}}
        return _facts(tensor, f"{tensor.layout}")
    if hasattr(kind, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return {"parts": {name: getattr(tensor, name) for name in names}, "note": kind.__name__}
    return {"parts": {"": _plain(tensor)}, "note": kind.__name__}


def _placement(tensor: Any) -> str:
    """Returns how a distributed tensor is spread: sizes and names of its mesh, and a placement for each of its
    dimensions."""
    mesh = tensor.device_mesh
    names = f" names {list(mesh.mesh_dim_names)}" if mesh.mesh_dim_names else ""
    return f"device_mesh {list(mesh.shape)}{names} placements {[str(p) for p in tensor.placements]}"


def _arrived(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a result of a functional collective once it has arrived: until then it holds anything, and
    the object around it has none."""
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        return tensor.trigger_wait()  # type: ignore[attr-defined]
    return tensor


def sum_of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the sum of two tensors of one kind, of distributed ones that of their local parts. Runs no recorded op: below
    the dispatcher, the objects around results of collectives have no memory."""
    with without_dispatch():
        plain = [_arrived(getattr(value, "_local_tensor", value)) for value in (a, b)]
        return _plain(plain[0]) + _plain(plain[1])


def memory_of(value: Any) -> Any:
    """Returns the memory that is written when an op writes to `value`, a tensor or a list of them: torch does not
    count writes to the local part of a distributed tensor."""
    if isinstance(value, (list, tuple)):
        return [memory_of(item) for item in value]
    return getattr(value, "_local_tensor", value) if type(value).__name__ == "DTensor" else value


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the same memory without the subclass."""
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def _facts(tensor: torch.Tensor, note: str) -> Description:
    return {
        "dtype": str(tensor.dtype),
        "shape": [int(size) if isinstance(size, int) else 0 for size in tensor.shape],
        "device": str(tensor.device),
        "note": f"no data: {note}",
    }


def _quantisation(tensor: torch.Tensor) -> str:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"quantised, scale {tensor.q_scale()!r}, zero point {tensor.q_zero_point()}"
    return f"quantised {tensor.qscheme()}"
