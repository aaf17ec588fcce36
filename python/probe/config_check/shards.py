"""This process's part of a tensor spread over ranks: torch's distributed tensors, and parameters under ZeRO-3."""

from __future__ import annotations

import sys
from typing import Any


def held(tensor: Any) -> Any:
    """Returns the part that this process holds, or a text that says why it cannot be read. A tensor that is not
    spread is returned as is."""
    # ZeRO-3 leaves an empty tensor in place of the parameter, with what it needs to rebuild it.
    part = getattr(tensor, "ds_tensor", None)
    if part is not None:
        return _held_by_zero(tensor, part)
    to_local = getattr(tensor, "to_local", None)
    if not callable(to_local):
        return tensor
    local = to_local()
    wait = getattr(local, "wait", None)
    return wait() if callable(wait) else local


def whole_shape(tensor: Any) -> list[int]:
    """Shape of the whole tensor across ranks."""
    return [int(size) for size in getattr(tensor, "ds_shape", tensor.shape)]


def place(tensor: Any) -> str | None:
    """`mesh=dp:4 placement=Shard(0)`; None for a tensor that is not spread."""
    if getattr(tensor, "ds_tensor", None) is not None:
        _, ranks = _zero_rank(tensor)
        return f"mesh=zero:{ranks} placement=flat"
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", None)
    if mesh is None or placements is None:
        return None
    names = getattr(mesh, "mesh_dim_names", None) or [str(index) for index in range(len(mesh.shape))]
    sizes = ",".join(f"{name}:{size}" for name, size in zip(names, mesh.shape))
    return f"mesh={sizes} placement={','.join(map(str, placements))}"


def _held_by_zero(tensor: Any, part: Any) -> Any:
    if getattr(getattr(part, "status", None), "name", "AVAILABLE") != "AVAILABLE":
        return "kept on disk by ZeRO"
    # The flattened elements are cut into equal parts. The padding at the end is never written.
    rank, _ = _zero_rank(tensor)
    size = int(part.ds_numel)
    own = min(max(int(tensor.ds_numel) - rank * size, 0), size)
    return part.detach().view(-1)[:own]


def _zero_rank(tensor: Any) -> tuple[int, int]:
    """Rank in the group that shares the parameter, and the size of that group."""
    distributed, group = sys.modules["torch"].distributed, tensor.ds_process_group
    return int(distributed.get_rank(group)), int(distributed.get_world_size(group))
