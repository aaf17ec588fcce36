"""Rank of this process, and the number of ranks."""

from __future__ import annotations

import os
import sys


def current_rank(given: int | None = None) -> int:
    """Returns the given rank, else that of torch.distributed, else the launcher's `RANK`; 0 for a single process."""
    if given is not None:
        return given
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _from_launcher("RANK", 0)


def is_rank_of_its_own() -> bool:
    """Returns true if this process is known to be one of several ranks."""
    distributed = sys.modules.get("torch.distributed")
    initialised = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return initialised or os.environ.get("RANK", "").isdigit()


def is_child() -> bool:
    """Returns true if multiprocessing started this process. Such a process has loaded the program again, and skips the
    interpreter's own exit handlers."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def processes_here() -> int:
    """Number of ranks that the launcher started on this machine; 1 for a single process."""
    return max(1, _from_launcher("LOCAL_WORLD_SIZE", 1))


def world_size() -> int:
    """Number of ranks according to torch.distributed or the launcher; 1 for a single process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return max(1, _from_launcher("WORLD_SIZE", 1))


def _from_launcher(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else default
