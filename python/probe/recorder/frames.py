"""Call stacks as text, and facts derived from them."""

from __future__ import annotations

import os
from types import FrameType

import probe
import torch
from probe.callsites import at_operator, is_foreign, text_of
from probe.private.autograd import ENGINE

#: Frames of files in these folders are not the user's.
_FOREIGN = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, probe.__file__))

#: Files through which torch passes an operator before it is intercepted.
_DETOURS = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    *(os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), name) for name in ("_tensor.py", "overrides.py", "utils/_device.py")),
)


def describe(frames: list[FrameType]) -> tuple[list[str], bool, bool]:
    """Returns the user's frames as text, innermost first; whether the call is made by an operator; whether no user
    frame lies between here and the start of the backward pass."""
    texts = []
    operator, placed = False, False
    engine_only = False
    for frame in frames:
        code = frame.f_code
        if code in ENGINE:
            engine_only = engine_only or not texts
        if not placed and not code.co_filename.startswith(_DETOURS):
            # Torch's own Python code uses operators as well, so this need not be a user frame.
            placed = True
            operator = at_operator(code, frame.f_lasti)
        if not is_foreign(code, _FOREIGN):
            texts.append(text_of(frame))
    return texts, operator, engine_only or not texts
