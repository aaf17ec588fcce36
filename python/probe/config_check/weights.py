"""Part `weights`: identity and statistics of every parameter and buffer before a step."""

from __future__ import annotations

from typing import Any

from probe.config_check import structure
from probe.config_check.digests import TensorDigests


class Weights:
    """Records the weights of a model, step by step."""

    def __init__(self) -> None:
        self._digests = TensorDigests()
        self.steps: list[dict[str, Any]] = []

    def add(self, step: int, model: Any) -> None:
        """Records what the model holds now, tied tensors once."""
        known: set[int] = set()
        listed = []
        for item in structure.tensors(model):
            if id(item.tensor) not in known:
                known.add(id(item.tensor))
                listed.append(item)
        measured = self._digests.tensors(item.tensor for item in listed)
        self.steps.append(
            {"step": step, "tensors": [{**_facts(item), **found} for item, found in zip(listed, measured)]}
        )


def _facts(item: structure.NamedTensor) -> dict[str, Any]:
    tensor = item.tensor
    found: dict[str, Any] = {
        "name": item.name,
        "kind": item.kind,
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
    try:
        local = getattr(tensor, "_local_tensor", tensor)
        found["shape"] = [int(size) for size in local.shape]
    except RuntimeError:
        return found
    shard = _shard(tensor)
    if shard:
        found["shard"] = shard
    return found


def _shard(tensor: Any) -> str | None:
    """`mesh=dp:4 placement=Shard(0)` of a distributed tensor."""
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", None)
    if mesh is None or placements is None:
        return None
    names = getattr(mesh, "mesh_dim_names", None) or [str(index) for index in range(len(mesh.shape))]
    sizes = ",".join(f"{name}:{size}" for name, size in zip(names, mesh.shape))
    return f"mesh={sizes} placement={','.join(map(str, placements))}"
