"""Call sites in programs of MindSpore."""

from __future__ import annotations

import os
from types import FrameType

import mindspore
import probe
from probe.callsites import is_foreign, text_of

#: Frames of files in these folders are not the user's.
_FOREIGN = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (mindspore.__file__, probe.__file__))


def describe(frames: list[FrameType]) -> tuple[list[str], bool, bool]:
    """Returns the user's frames as text, innermost first; false, as operators are methods here; whether there is no frame of
    the user's."""
    texts = [text_of(frame) for frame in frames if not is_foreign(frame.f_code, _FOREIGN)]
    return texts, False, not texts
