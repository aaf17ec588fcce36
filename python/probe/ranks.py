"""Which rank this process is."""

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
    text = os.environ.get("RANK", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_rank_of_its_own() -> bool:
    """Whether this process is known to be one of several ranks."""
    distributed = sys.modules.get("torch.distributed")
    initialised = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return initialised or os.environ.get("RANK", "").isdigit()


def processes_here() -> int:
    """How many ranks the launcher says it has started on this machine; 1 for a single process."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() else 1
