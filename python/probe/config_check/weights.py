"""Part `weights`: identity and statistics of every parameter and buffer before a step."""

from __future__ import annotations

from typing import Any

from probe.config_check import shards, structure
from probe.config_check.digests import TensorDigests


class Weights:
    """Records the weights of a model, step by step."""

    def __init__(self) -> None:
        self._digests = TensorDigests()
        self.steps: list[dict[str, Any]] = []

    def add(self, step: int, model: Any) -> None:
        """Records the current tensors of the model, tied ones once."""
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
    held = shards.held(tensor)
    if isinstance(held, str):
        return found
    try:
        found["shape"] = [int(size) for size in held.shape]
    except RuntimeError:
        # A lazy parameter has no shape yet.
        return found
    place = shards.place(tensor)
    if place:
        found["shard"] = place
    return found
