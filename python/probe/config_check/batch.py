"""Part `dataset`: the model's inputs at a step, and what else the loader yielded with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from probe.config_check import secrets
from probe.config_check.digests import TensorDigests

_MAX_LEAVES = 20_000
_MAX_DEPTH = 12
_MAX_TEXT = 2000
# Most batches to digest while no forward call comes.
_MAX_WAITING = 64


class Batches:
    """Records batches before the forward call that reads them."""

    def __init__(self) -> None:
        self._digests = TensorDigests(sketch=False, unordered=False, casts=False)
        self.steps: list[dict[str, Any]] = []
        # Tensors of the batches that no forward call has read so far, in order, and the last batch itself.
        self._waiting: list[list[dict[str, Any]]] = []
        self._last: Any = None

    def offer(self, batch: Any) -> None:
        """Takes a batch from the loader. Which forward call reads it is known only later, since many programs
        prefetch."""
        if len(self._waiting) < _MAX_WAITING:
            self._digest_last()
        self._last = batch

    def add(self, step: int, args: tuple[Any, ...], kwargs: dict[str, Any], keep: bool = False) -> None:
        """Records the arguments of forward call `step`, and the rest of the loader's batch that they come from.

        With `keep`, another call may read that batch as well.
        """
        if keep:
            self._digest_last()
        waiting = list(self._waiting)
        arguments = list(self._leaves([("args", args), ("kwargs", kwargs)]))
        known = {argument["hash"] for argument in arguments if "hash" in argument}
        arguments += [leaf for leaf in self._source(known) if leaf.get("hash") not in known]
        # A step observed elsewhere than at a call may have no arguments.
        if arguments or args or kwargs:
            self.steps.append({"step": step, "arguments": arguments})
        if keep:
            self._waiting = waiting

    def close(self) -> None:
        """Releases all batches."""
        self._waiting, self._last = [], None

    def _digest_last(self) -> None:
        if self._last is not None:
            self._waiting.append([leaf for leaf in self._leaves([("loader", self._last)]) if leaf["kind"] == "tensor"])
        self._last = None

    def _source(self, known: set[str]) -> list[dict[str, Any]]:
        """Takes the batch that shares the most tensors with `known`, and drops it and those before it. If no batch
        shares any, takes the last one and drops all."""
        self._digest_last()
        if not self._waiting:
            return []
        shared = [sum(leaf.get("hash") in known for leaf in batch) for batch in self._waiting]
        index = shared.index(max(shared)) if any(shared) else len(shared) - 1
        source = self._waiting[index]
        del self._waiting[: index + 1]
        return source

    def _leaves(self, roots: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
        leaves = [leaf for path, root in roots for leaf in _flatten(path, root, 0)][:_MAX_LEAVES]
        tensors = [(index, value) for index, (_, value) in enumerate(leaves) if _is_tensor(value)]
        measured = dict(zip((index for index, _ in tensors), self._digests.tensors(value for _, value in tensors)))
        for index, (path, value) in enumerate(leaves):
            if index in measured:
                yield {"path": path, "kind": "tensor", **self._tensor(value, measured[index])}
            elif value is None or isinstance(value, (bool, int, float, str)):
                shown = value[:_MAX_TEXT] if isinstance(value, str) else value
                yield {"path": path, "kind": "value", "value": secrets.value_of(path, shown)}
            else:
                yield {"path": path, "kind": "object", "class": type(value).__name__}

    def _tensor(self, tensor: Any, measured: dict[str, Any]) -> dict[str, Any]:
        found = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), **measured}
        if "hash" in measured:
            samples = self._digests.samples(tensor)
            if samples is not None:
                found["samples"] = samples
        return found


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _flatten(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Leaves of `value` with their paths. Runs no user code except that of containers."""
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            for name, item in value.items():
                yield from _flatten(f"{path}.{secrets.text(str(name))}", item, depth + 1)
            return
        if isinstance(value, (list, tuple)) and not _is_size(value):
            names = getattr(value, "_fields", None) or range(len(value))
            for name, item in zip(names, value):
                yield from _flatten(f"{path}.{name}", item, depth + 1)
            return
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                yield from _flatten(f"{path}.{field.name}", getattr(value, field.name, None), depth + 1)
            return
    if type(value).__module__ == "numpy":
        value = _from_numpy(value)
    elif type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device", "layout"):
        value = str(value).removeprefix("torch.")
    elif _is_size(value):
        value = str(tuple(value))
    yield path, value


def _is_size(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Size)


def _from_numpy(value: Any) -> Any:
    import torch

    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError):
        return value
