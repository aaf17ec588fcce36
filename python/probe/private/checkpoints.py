"""Code objects of activation checkpointing, used to recognise a region among the frames."""

from __future__ import annotations

import inspect
import itertools
from types import CodeType, FrameType
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing

from probe.private.autograd import ENGINE

#: Counter of checkpointed regions.
_regions = itertools.count(1)


def checkpoint_code() -> list[tuple[CodeType, bool]]:
    """Code of the activation checkpointing functions through which a region runs, and whether each recomputes it."""
    # In newer versions of torch, the called function forwards to another one.
    runs = getattr(checkpointing, "_checkpoint_impl", checkpointing.checkpoint)
    return [
        (inspect.unwrap(runs).__code__, False),
        (checkpointing.CheckpointFunction.forward.__code__, False),
        (checkpointing.CheckpointFunction.backward.__code__, True),
        *((code, True) for code in _inner("_checkpoint_hook", "unpack_hook")),
    ]


def border_code() -> list[tuple[CodeType, bool]]:
    """Code that the enclosing region does not extend into, and whether that is because it starts a backward pass.

    Checkpointing's own work differs between its two kinds, and is not part of the program.
    """
    own = [
        getattr(checkpointing, name).__code__
        for name in (
            "detach_variable",
            "_checkpoint_without_reentrant_generator",
            "_checkpoint_without_reentrant_generator_impl",
        )
        if hasattr(checkpointing, name)
    ]
    return [
        *((code, False) for code in (*own, *_inner("_recomputation_hook", "pack_hook"))),
        *((code, True) for code in ENGINE),
    ]


def _inner(owner: str, name: str) -> list[CodeType]:
    """Code of a function created in the constructor of a checkpointing class."""
    made = getattr(checkpointing, owner, None)
    constants = made.__init__.__code__.co_consts if made is not None else ()
    return [constant for constant in constants if isinstance(constant, CodeType) and constant.co_name == name]


def region(frame: FrameType) -> int:
    """Returns the identity of the checkpointed region that a frame of `checkpoint_code` runs: the same in both
    passes."""
    values: dict[str, Any] = frame.f_locals
    # The non-reentrant function that recomputes a region has a variable of each name.
    if "frame" in values:
        return _identity(values["frame"])
    if "ctx" in values:
        return _identity(values["ctx"])
    generator = values.get("gen")
    if generator is not None and generator.gi_frame is not None:
        frame_of_region = generator.gi_frame.f_locals.get("new_frame")
        return _identity(frame_of_region) if frame_of_region is not None else 0
    return 0


def _identity(owner: Any) -> int:
    """Returns a number that no other region has: addresses are reused."""
    number = getattr(owner, "_probe_region", None)
    if number is None:
        number = owner._probe_region = next(_regions)
    return int(number)
