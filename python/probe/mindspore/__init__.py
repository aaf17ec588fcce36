"""Records programs of MindSpore in PYNATIVE mode. Nothing here needs torch.

    session    when to record: steps, start and stop, the end of the process
    program    the way in from a program
    launch     the way in below `probe capture`
    debugger   the way in of scripts for the older tool
    core       the request to `probe._core.Recorder`
    arrays     tensors as the core reads them
    calls      calls of cells and steps of optimizers, for everything here that waits for them
    cells      records calls of cells, and keeps track of which cell other calls run in
    functions  records functions, methods of tensors and primitives
    gradients  backward values: gradients of a call's own inputs and outputs, and of parameters
    graph      MindSpore's autograd graph and everything else of it that is not documented
    frames     call sites in the program
"""

from __future__ import annotations

import importlib

# Type checkers read this as true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from probe.mindspore.debugger import PrecisionDebugger as PrecisionDebugger
    from probe.mindspore.debugger import seed_all as seed_all
    from probe.mindspore.program import capture as capture

#: Module that defines each public name.
_EXPORTS = {
    "PrecisionDebugger": "probe.mindspore.debugger",
    "capture": "probe.mindspore.program",
    "seed_all": "probe.mindspore.debugger",
}

__all__ = ["PrecisionDebugger", "capture", "seed_all"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        from probe.nearest import suggestion

        raise AttributeError(f"module 'probe.mindspore' has no name {name!r}; {suggestion(name, _EXPORTS)}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
