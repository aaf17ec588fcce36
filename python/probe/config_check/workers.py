"""Runs in the worker processes of a loader: records the generators' states after each of the first batches.

A worker reaches its parent only through the batches, which are the user's; so it leaves its notes in a folder.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ORIGINAL: list[Callable[..., Any]] = []
_WORKER_ID = 10
_WORKERS = 11


def target(folder: str, batches: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that a loader's processes run in place of `original`. It can be pickled for a spawned
    process."""
    _ORIGINAL[:] = [original]
    return functools.partial(_loop, folder, batches)


def _loop(folder: str, batches: int, *arguments: Any) -> Any:
    from torch.utils.data._utils import worker

    original = _ORIGINAL[0] if _ORIGINAL else worker._worker_loop
    try:
        _observe(folder, batches, int(arguments[_WORKER_ID]), int(arguments[_WORKERS]))
    except Exception:
        pass
    return original(*arguments)


def _observe(folder: str, batches: int, worker: int, workers: int) -> None:
    """Records the states after each batch that this worker makes, until all workers together have made `batches`."""
    from torch.utils.data.dataloader import _DatasetKind

    create = _DatasetKind.create_fetcher
    made = iter(range(worker, batches, workers))

    def create_fetcher(*arguments: Any, **keywords: Any) -> Any:
        fetcher = create(*arguments, **keywords)
        fetch = fetcher.fetch

        def noted(index: Any) -> Any:
            batch = fetch(index)
            try:
                number = next(made, None)
                if number is None:
                    del fetcher.fetch
                else:
                    _note(Path(folder), worker, number)
            except Exception:
                pass
            return batch

        fetcher.fetch = noted
        return fetcher

    # Only this process sees the change, and it ends with its loader.
    _DatasetKind.create_fetcher = staticmethod(create_fetcher)


def _note(folder: Path, worker: int, batch: int) -> None:
    from probe.config_check import generators

    import torch

    states = generators.describe(generators.snapshot(), {"torch": generators.seeded(torch.initial_seed())})
    kept = {name: state for name, state in states.items() if not name.startswith("device")}
    temporary = folder / f".{worker}-{batch}.{os.getpid()}"
    temporary.write_text(json.dumps(kept), "utf-8")
    temporary.rename(folder / f"{worker}-{batch}.json")


def notes(folder: Path) -> dict[int, dict[str, Any]]:
    """Returns the workers' notes: for each batch the states by the names of `random.json`."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            worker, batch = map(int, path.stem.split("-"))
            states = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        found.setdefault(batch, {}).update({f"worker.{worker}.{name}": state for name, state in states.items()})
    return found
