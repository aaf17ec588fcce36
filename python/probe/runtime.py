"""The agent below Python, `libprobe_agent.so`, which `probe capture --runtime acl` loads in front of everything: what it is told."""

from __future__ import annotations

import ctypes
import functools
import json
import os
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


#: What the agent calls, for as long as the process lives.
_drain: Any = None


def follow_queue() -> None:
    """Where torch_npu plans operators on the thread of its queue (`TASK_QUEUE_ENABLE=2`): attribute them to the op of torch that called them all the same."""
    global _drain
    library = agent()
    share = getattr(library, "probe_agent_share_scopes", None)
    if share is None or _drain is not None or os.environ.get("TASK_QUEUE_ENABLE") != "2":
        return
    _drain = ctypes.CFUNCTYPE(None)(_empty_queue)
    share(_drain)


def _empty_queue() -> None:
    """Wait until the queue has planned everything, for none of it belongs to what begins now. The device is not waited for."""
    try:
        import torch

        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_initialized():
            # The handle of a stream is given out when the queue is empty.
            _ = npu.current_stream().npu_stream
    except Exception as error:
        # Better no name than a wrong one.
        agent().probe_agent_share_scopes(None)
        warn(f"operators below Python are recorded without the torch op that called them: torch_npu's queue cannot be emptied ({type(error).__name__}: {error})")


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
    """Wait until torch_npu's queue of launches is empty: what is in it belongs to the step that ends. Not while a graph is captured, which would be the end of that."""
    import torch

    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_initialized():
        return
    captures = getattr(npu, "is_current_stream_capturing", None)
    if captures is None or not captures():
        npu.synchronize()
