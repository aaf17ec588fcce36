"""`pack` for training scripts: takes a model and whatever trains it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe.config_check import hyperparameters
from probe.config_check.draft import Draft, Request
from probe.config_check.seeds import watch
from probe.messages import say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from probe.config_check.collection import Collection
    from probe.mindspore.packing.collection import Collection as MindSporeCollection


def pack(
    model: Any,
    output: str | os.PathLike[str],
    *,
    dataset: Any = None,
    dataloader: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    extra: Mapping[str, Any] | None = None,
    files: list[str | Path] | None = None,
    data_files: list[str | Path] | None = None,
    steps: int = 1,
    fmk: str = "pytorch",
) -> Draft:
    """Pack the setup of this training into the zip `output`, for `probe config-check`.

    Call it on every rank, after the model is built and before the loop begins. It observes the next `steps` forward
    calls of `model`, then removes all its hooks and writes. Anything not handed over is found where it is used: the
    loader that yields batches, the optimizer that steps, the scheduler, the scaler. `extra` holds settings of your
    own; `files` are launch scripts and YAML or JSON files whose settings belong to the run; `data_files` are files
    the data comes from, such as the tokenizer's. `fmk` is `pytorch` or `mindspore`.

    Returns the collection; its `finish()` writes what there is at once. Without it, the pack is written at the first
    forward call after the last step, or at process exit. Raises OSError if `output` cannot be written, and ValueError
    for another framework. After that, no failure of packing reaches the training.
    """
    kind = collection_of(fmk)
    request = Request(
        Path(os.fspath(output)),
        steps=steps,
        dataset=dataset,
        dataloader=dataloader,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        extra=extra,
        files=list(files or []),
        data_files=list(data_files or []),
    )
    collection = kind(request)
    try:
        collection.watch()
        if model is not None:
            collection.attach(model)
        collection.settings(hyperparameters.script_frame())
        if model is None or steps == 0:
            collection.finish()
    except Exception as error:
        say(f"config-check: nothing is packed: {type(error).__name__}: {error}")
        collection.abandon()
    return collection


def collection_of(fmk: str) -> type[Collection] | type[MindSporeCollection]:
    """Returns what collects packs of a framework. Raises ValueError for one that is not known."""
    if fmk == "pytorch":
        from probe.config_check.collection import Collection

        return Collection
    if fmk == "mindspore":
        from probe.mindspore.packing.collection import Collection as MindSporeCollection

        return MindSporeCollection
    raise ValueError(f"fmk: {fmk!r} is not 'pytorch' or 'mindspore'")


# Seeds set from here on are seen.
watch.start()
