"""Part `dataloader`: how batches are made. Finds the loader in use and looks into its workers."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe.config_check import secrets, workers
from probe.patches import Patches


def collect(loader: Any) -> dict[str, Any]:
    """Returns the loader as in `dataloader.json`."""
    found: dict[str, Any] = {"class": type(loader).__name__}
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    for name in ("batch_size", "drop_last", "num_workers", "persistent_workers", "prefetch_factor", "pin_memory", "timeout"):
        if hasattr(loader, name):
            found[name] = secrets.clean(getattr(loader, name))
    # A user's batch sampler hides these from the loader.
    for name in ("batch_size", "drop_last"):
        if found.get(name) is None and hasattr(batch_sampler, name):
            found[name] = secrets.clean(getattr(batch_sampler, name))
    shuffle = _shuffle(sampler)
    if shuffle is not None:
        found["shuffle"] = shuffle
    found["sampler"] = type(sampler).__name__ if sampler is not None else None
    found["batch_sampler"] = type(batch_sampler).__name__ if batch_sampler is not None else None
    found["worker_init_fn"] = _name(getattr(loader, "worker_init_fn", None))
    found["collate_fn"] = _name(getattr(loader, "collate_fn", None))
    generator = getattr(loader, "generator", None)
    found["generator_seed"] = int(generator.initial_seed()) if generator is not None else None
    found["epoch"] = next(
        (int(item.epoch) for item in (sampler, batch_sampler) if isinstance(getattr(item, "epoch", None), int)), None
    )
    sampler_seed = getattr(sampler, "seed", None)
    if isinstance(sampler_seed, int):
        found["sampler_seed"] = sampler_seed
    dataset = getattr(loader, "dataset", None)
    if dataset is not None:
        found["dataset"] = type(dataset).__name__
        found["samples"] = length(dataset)
    found["batches"] = length(loader)
    return {name: value for name, value in found.items() if value is not None or name in _MAY_BE_NULL}


_MAY_BE_NULL = ("worker_init_fn", "generator_seed", "epoch", "batch_size")


class LoaderWatch:
    """Tracks the loader that yields batches, its batches, and the seed of its workers."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._folder: Path | None = None
        self._iterators: weakref.WeakKeyDictionary[Any, tuple[Any, Path | None]] = weakref.WeakKeyDictionary()
        self._current: Any = None
        self.on_batch: Callable[[Any], None] | None = None

    def start(self, patches: Patches) -> None:
        """Watches all loaders of torch until `patches` are undone."""
        from torch.utils.data import dataloader

        patches.attribute(dataloader.DataLoader, "__iter__", self._iter)
        patches.attribute(dataloader._BaseDataLoaderIter, "__next__", self._next)

    def loader(self) -> Any:
        """Returns the loader that yielded the last batch, if any did."""
        entry = self._iterators.get(self._current) if self._current is not None else None
        return entry[0]() if entry is not None else None

    def seed(self, loader: Any) -> int | None:
        """Returns the base seed of the workers of `loader`."""
        for iterator, (reference, _) in list(self._iterators.items()):
            seed = getattr(iterator, "_base_seed", None)
            if reference() is loader and isinstance(seed, int):
                return seed
        return None

    def worker_states(self) -> dict[int, dict[str, Any]]:
        """Returns the states of the workers' generators after each batch of the loader in use."""
        entry = self._iterators.get(self._current) if self._current is not None else None
        folder = entry[1] if entry is not None else None
        return workers.notes(folder) if folder is not None else {}

    def close(self) -> None:
        """Releases everything."""
        self._current = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            # Workers are started while the iterator is created, and only there.
            swap = Patches()
            folder = None
            if getattr(loader, "num_workers", 0):
                try:
                    folder = self._notes_folder()
                    from torch.utils.data._utils import worker

                    swap.attribute(worker, "_worker_loop", lambda loop: workers.target(str(folder), self._batches, loop))
                except Exception:
                    folder = None
            try:
                iterator = original(loader)
            finally:
                swap.undo()
            try:
                self._iterators[iterator] = (weakref.ref(loader), folder)
            except TypeError:
                pass
            return iterator

        return iterate

    def _next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def give(iterator: Any) -> Any:
            batch = original(iterator)
            self._current = iterator
            if self.on_batch is not None:
                self.on_batch(batch)
            return batch

        return give

    def _notes_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="probe-loader-"))
        folder = self._folder / str(len(self._iterators))
        folder.mkdir(exist_ok=True)
        return folder


def _shuffle(sampler: Any) -> bool | None:
    if sampler is None:
        return None
    classes = {base.__name__ for base in type(sampler).__mro__}
    if classes & {"RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"}:
        return True
    if "SequentialSampler" in classes:
        return False
    shuffle = getattr(sampler, "shuffle", None)
    return shuffle if isinstance(shuffle, bool) else None


def _name(function: Any) -> str | None:
    if function is None:
        return None
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__name__)


def length(sized: Any) -> int | None:
    """Number of elements, if there is one."""
    # Iterable datasets have none, or warn about a wrong one.
    try:
        return int(len(sized))
    except (TypeError, NotImplementedError, AttributeError):
        return None
