"""Which rank this process is, and of how many."""

from __future__ import annotations

import os
import sys


def current_rank(given: int | None = None) -> int:
    """The rank that was given, or that torch.distributed knows, or that the launcher put into `RANK`; 0 for a single process."""
    if given is not None:
        return given
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _from_launcher("RANK", 0)


def is_rank_of_its_own() -> bool:
    """Whether this process is known to be one of several ranks."""
    distributed = sys.modules.get("torch.distributed")
    initialised = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return initialised or os.environ.get("RANK", "").isdigit()


def is_child() -> bool:
    """Whether multiprocessing started this process. It has read the program anew, and leaves without the interpreter's own end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def processes_here() -> int:
    """How many ranks the launcher says it has started on this machine; 1 for a single process."""
    return max(1, _from_launcher("LOCAL_WORLD_SIZE", 1))


def world_size() -> int:
    """How many ranks torch.distributed knows of, or the launcher says there are; 1 for a single process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return max(1, _from_launcher("WORLD_SIZE", 1))


def _from_launcher(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else default
