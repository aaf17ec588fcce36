"""Interface to the agent below Python, `libprobe_agent.so`, which `probe capture --runtime acl` preloads into the
program."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any

from probe.messages import warn

#: Version of the agent's functions that this package knows.
_VERSION = 1


@functools.cache
def agent() -> Any:
    """Returns the library if it is loaded; else None, which is reported once."""
    process = ctypes.CDLL(None)
    version = getattr(process, "probe_agent_version", None)
    if version is None:
        warn("operators below Python are not recorded: the agent is not loaded; LD_PRELOAD was changed on the way, or the program runs as another user")
        return None
    if version() != _VERSION:
        warn(f"operators below Python are not recorded step by step: the agent has version {version()}, and this package knows {_VERSION}")
        return None
    for name, arguments in (("begin_step", [ctypes.c_uint64]), ("wants_step", [ctypes.c_uint64]), ("report", [ctypes.c_char_p, ctypes.c_size_t])):
        getattr(process, f"probe_agent_{name}").argtypes = arguments
    process.probe_agent_report.restype = ctypes.c_size_t
    process.probe_agent_wants_step.restype = ctypes.c_bool
    return process


#: Callback of the agent, kept for the life of the process.
_drain: Any = None


def follow_queue() -> None:
    """Attributes operators to the torch op that called them even if torch_npu plans them on its queue thread
    (`TASK_QUEUE_ENABLE=2`)."""
    global _drain
    library = agent()
    share = getattr(library, "probe_agent_share_scopes", None)
    if share is None or _drain is not None or os.environ.get("TASK_QUEUE_ENABLE") != "2":
        return
    _drain = ctypes.CFUNCTYPE(None)(_empty_queue)
    share(_drain)


def _empty_queue() -> None:
    """Wait until the queue has planned everything, because none of it belongs to what begins now. Does not wait for
    the device."""
    try:
        import torch

        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_initialized():
            # `torch_npu` returns a stream's handle only once the queue is empty.
            _ = npu.current_stream().npu_stream
    except Exception as error:
        # No name is better than a wrong one.
        agent().probe_agent_share_scopes(None)
        warn(f"operators below Python are recorded without the torch op that called them: torch_npu's queue cannot be emptied ({type(error).__name__}: {error})")


def hold() -> None:
    """From now on this package marks where steps begin and end; until it does, nothing is recorded."""
    if (library := agent()) is not None:
        library.probe_agent_hold()


def begin_step(number: int) -> None:
    """Begin a step. Earlier work has reached the device."""
    if (library := agent()) is not None:
        _synchronize()
        library.probe_agent_begin_step(number)


def end_step() -> None:
    """End the step, including all work given to the device in it."""
    if (library := agent()) is not None:
        _synchronize()
        library.probe_agent_end_step()


def close() -> None:
    """Write the remaining records."""
    if (library := agent()) is not None:
        library.probe_agent_close()


def report() -> dict[str, Any]:
    """Returns the agent's findings and counts; empty if it is not loaded."""
    if (library := agent()) is None:
        return {}
    size = library.probe_agent_report(None, 0)
    # The report may grow meanwhile.
    text = ctypes.create_string_buffer(size + 1024)
    library.probe_agent_report(text, len(text))
    return json.loads(text.value or b"{}")  # type: ignore[no-any-return]


def _synchronize() -> None:
    """Wait until torch_npu's queue of launches is empty: its contents belong to the step that ends. Not during graph
    capture, which this would abort."""
    import torch

    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_initialized():
        return
    captures = getattr(npu, "is_current_stream_capturing", None)
    if captures is None or not captures():
        npu.synchronize()
