"""Records what operators read and write.

    _session   when: steps, start and stop, the end of the process
    modes      torch's interception points: functions as the user calls them, ops of the dispatcher
    modules    calls of modules, and the scope that other ops stand in
    updates    steps of optimizers: what they were given, and what they made of it
    gradients  what flows backward: gradients of an op's own inputs and outputs, and of parameters
    ending     how a program ends inside a step
    naming     what things are called
    frames     where in the program they are called
    collectives  what ranks do together
    device     numbers of tensors that are not in host memory

What of torch is private stands in `probe.private`. What was intercepted goes to `probe._core.Recorder`, which measures and writes it.
"""

import torch

# Tried with 2.5, 2.7 and 2.15. With 2.1 modes stay behind after some programs.
if torch.__version__ < (2, 5):  # type: ignore[operator]
    raise ImportError(f"torch {torch.__version__} cannot be recorded: 2.5 or later is needed")

from probe.recorder._session import Capture, Session, capture  # noqa: E402

__all__ = ["Capture", "Session", "capture"]
