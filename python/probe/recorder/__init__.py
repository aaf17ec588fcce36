"""Records the inputs and outputs of operators.

    _session   when to record: steps, start and stop, the end of the process
    program    the way in from a program
    core       what measures and writes: its manifest, options and hooks
    interception  the modes of a recording on the program's threads
    modes      torch's interception points: functions as the user calls them, ops of the dispatcher
    modules    module calls, and the scope that other ops are in
    updates    optimizer steps: their inputs and their results
    gradients  backward values: gradients of an op's own inputs and outputs, and of parameters
    saves      values that the program gives to the record
    keeping    steps that stay, of a run that is watched
    perturb    moves weights and inputs by one rounding
    ending     how a program ends inside a step
    naming     names of ops and values
    frames     call sites in the program
    collectives  collective operations of the ranks
    device     statistics of tensors outside host memory

Everything that relies on torch's private parts is in `probe.private`. Intercepted values go to
`probe._core.Recorder`, which measures and writes them.
"""

import torch

# The versions that were tried stand in `probe.private.TRIED`.
if torch.__version__ < (2, 1):  # type: ignore[operator]
    raise ImportError(f"torch {torch.__version__} cannot be recorded: 2.1 or later is needed")

from probe.recorder._session import Session  # noqa: E402
from probe.recorder.program import Capture, capture  # noqa: E402

__all__ = ["Capture", "Session", "capture"]
