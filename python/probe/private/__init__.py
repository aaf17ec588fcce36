"""The private side of torch: every name, object and habit of it that torch promises to nobody, in one place.

What stands here may be otherwise in the next version. Where a name differs between versions, the function that wants it knows both;
where it is missing, there is another way, or an error that says so. The other half is `python/src/private`, which reads torch's objects in memory.

    guards       operations that nobody else sees
    modes        the stacks of modes
    checkpoints  code of activation checkpointing
    autograd     nodes and passes
    dispatcher   ops and what is behind them
    compiling    what `torch.compile` compiles with
    tensors      tensors that are not plainly strided
    hooks        hooks of optimizers
    streams      the current queue of a device

**Quick ways** read in memory, or step over code of torch, what torch's public attributes and functions say more slowly. They are
looked over when a recording begins, and one that says anything else than the slow way is not taken. That cannot find
everything, so they are only taken with versions of torch that they were tried on. `PROBE_SAFE=1` takes none of them; `PROBE_SAFE=0`
takes them with any version.
"""

from __future__ import annotations

import os
import sys

#: Versions of torch that the quick ways were tried on, and what is otherwise in them.
TRIED: dict[str, str] = {
    "2.1": "packs of config-check alone: no C interface, so attributes are read",
    "2.5": "compiled functions cannot be recorded",
    "2.7": "the version of the tests, also with torch_npu 2.7.1.post11",
    "2.11": "the version of the tests on a GPU",
    "2.15": "backends of compiled functions and checkpointed regions are found by other names",
}

#: The switch.
VARIABLE = "PROBE_SAFE"


def safe() -> str:
    """Why no quick way is taken; empty where they are."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted not in ("", "0"):
        return f"{VARIABLE} is set"
    version = ".".join(str(sys.modules["torch"].__version__).split(".")[:2]) if "torch" in sys.modules else ""
    if wanted == "0" or version in TRIED:
        return ""
    return f"torch {version} has not been tried"
