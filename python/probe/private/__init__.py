"""The private side of torch: every undocumented name, object and behaviour that we rely on, in one place.

Any of it may change in the next version. If a name differs between versions, the function that needs it knows both;
if it is missing, there is another way, or an error that says so. The other half is `python/src/private`, which reads
torch's objects in memory.

    guards       operations invisible to everyone else
    modes        the stacks of modes
    fastpaths    fused kernels that modules leave when a mode is active
    checkpoints  code of activation checkpointing
    autograd     nodes and passes
    casts        autocast, and devices without memory
    dispatcher   ops and what is behind them
    compiling    backends of `torch.compile`
    tensors      tensors that are not plainly strided
    hooks        hooks of optimizers
    streams      the current queue of a device

**Quick ways** read memory directly, or skip torch code, instead of using torch's slower public attributes and
functions. They are checked when a recording begins, and one that disagrees with the slow way is not used. The check
cannot find everything, so they are only used with versions of torch that they were tried on. `PROBE_SAFE=1` disables
all of them; `PROBE_SAFE=0` uses them with any version.
"""

from __future__ import annotations

import os
import sys

#: Versions of torch that the quick ways were tried on, and what differs in them.
TRIED: dict[str, str] = {
    "2.1": "no C interface, so attributes are read; compiled functions cannot be recorded",
    "2.5": "compiled functions cannot be recorded",
    "2.7": "the version of the tests, also with torch_npu 2.7.1.post11",
    "2.11": "the version of the tests on a GPU",
    "2.15": "backends of compiled functions and checkpointed regions are found by other names",
}

#: Environment variable that turns the quick ways on or off.
VARIABLE = "PROBE_SAFE"


def safe() -> str:
    """Returns why quick ways are disabled; empty if they are enabled."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted not in ("", "0"):
        return f"{VARIABLE} is set"
    version = ".".join(str(sys.modules["torch"].__version__).split(".")[:2]) if "torch" in sys.modules else ""
    if wanted == "0" or version in TRIED:
        return ""
    return f"torch {version} has not been tried"
