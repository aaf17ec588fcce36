"""Rank of this process, and the number of ranks."""

from __future__ import annotations

import os
import sys
from typing import Any


def current_rank(given: int | None = None) -> int:
    """Returns the given rank, else that of the process group, else the launcher's `RANK` (`RANK_ID` for MindSpore); 0 for a
    single process."""
    if given is not None:
        return given
    group = _group()
    return int(group.get_rank()) if group is not None else _from_launcher(("RANK", "RANK_ID"), 0)


def is_rank_of_its_own() -> bool:
    """Returns true if this process is known to be one of several ranks."""
    return _group() is not None or any(os.environ.get(name, "").isdigit() for name in ("RANK", "RANK_ID"))


def is_child() -> bool:
    """Returns true if multiprocessing started this process. Such a process has loaded the program again, and skips the
    interpreter's own exit handlers."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def processes_here() -> int:
    """Number of ranks that the launcher started on this machine; 1 for a single process."""
    return max(1, _from_launcher(("LOCAL_WORLD_SIZE",), 1))


def world_size() -> int:
    """Number of ranks according to the process group or the launcher; 1 for a single process."""
    group = _group()
    if group is None:
        return max(1, _from_launcher(("WORLD_SIZE", "RANK_SIZE"), 1))
    return int(group.get_world_size() if hasattr(group, "get_world_size") else group.get_group_size())


def _group() -> Any:
    """Returns the module of the framework's process group; None without a group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed
    communication = sys.modules.get("mindspore.communication")
    return communication if communication is not None and communication.GlobalComm.INITED else None


def _from_launcher(variables: tuple[str, ...], default: int) -> int:
    found = (os.environ.get(variable, "") for variable in variables)
    return next((int(text) for text in found if text.isascii() and text.isdigit()), default)
