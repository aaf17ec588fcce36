"""The agent below Python, `libprobe_agent.so`, which `probe capture --runtime acl` loads in front of everything: what it is told."""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any

from probe.messages import warn

#: Version of its functions that this package knows.
_VERSION = 1


@functools.cache
def agent() -> Any:
    """The library, if it is loaded; else None, which is said once."""
    process = ctypes.CDLL(None)
    version = getattr(process, "probe_agent_version", None)
    if version is None:
        warn("operators below Python are not recorded: the agent is not loaded; LD_PRELOAD was changed on the way, or the program is another user's")
        return None
    if version() != _VERSION:
        warn(f"operators below Python are not recorded step by step: the agent has version {version()}, and this package knows {_VERSION}")
        return None
    for name, arguments in (("begin_step", [ctypes.c_uint64]), ("wants_step", [ctypes.c_uint64]), ("report", [ctypes.c_char_p, ctypes.c_size_t])):
        getattr(process, f"probe_agent_{name}").argtypes = arguments
    process.probe_agent_report.restype = ctypes.c_size_t
    process.probe_agent_wants_step.restype = ctypes.c_bool
    return process


def hold() -> None:
    """From now on this package says where steps begin and end; until it does, nothing is recorded."""
    if (library := agent()) is not None:
        library.probe_agent_hold()


def begin_step(number: int) -> None:
    """A step begins. What was given to the device before has reached it."""
    if (library := agent()) is not None:
        _synchronize()
        library.probe_agent_begin_step(number)


def end_step() -> None:
    """The step ends, with all that was given to the device in it."""
    if (library := agent()) is not None:
        _synchronize()
        library.probe_agent_end_step()


def close() -> None:
    """Write what is left."""
    if (library := agent()) is not None:
        library.probe_agent_close()


def report() -> dict[str, Any]:
    """What the agent found and counted; empty where it is not loaded."""
    if (library := agent()) is None:
        return {}
    size = library.probe_agent_report(None, 0)
    # It may count on meanwhile.
    text = ctypes.create_string_buffer(size + 1024)
    library.probe_agent_report(text, len(text))
    return json.loads(text.value or b"{}")  # type: ignore[no-any-return]


def _synchronize() -> None:
    """Wait until torch_npu's queue of launches is empty: what is in it belongs to the step that ends."""
    import torch

    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_initialized():
        npu.synchronize()
