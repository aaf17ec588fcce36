"""Call stacks as text, and what they say beyond it."""

from __future__ import annotations

import dis
import inspect
import itertools
import linecache
import os
from types import CodeType, FrameType
from typing import Any

import probe
import torch
import torch.utils.checkpoint as checkpointing

#: Frames of files below these folders are not the user's.
_FOREIGN = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, probe.__file__))

#: Files through which torch takes an operator before it is intercepted.
_DETOURS = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    *(os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), name) for name in ("_tensor.py", "overrides.py", "utils/_device.py")),
)

#: The function that runs the backward pass.
_ENGINE = ("_engine_run_backward", os.path.join("torch", "autograd", "graph.py"))

#: Instructions for operators, and the compound form that tells operators from calls since Python 3.11.
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_OP", "UNARY_")


#: Numbers of checkpointed regions.
_regions = itertools.count(1)


def describe(frames: list[FrameType]) -> tuple[list[str], bool, bool]:
    """The user's frames as text, innermost first; whether the call is made by an operator; whether none of the user's
    lies between here and the start of the backward pass."""
    texts = []
    operator, placed = False, False
    engine_only = False
    for frame in frames:
        code = frame.f_code
        if code.co_name == _ENGINE[0] and code.co_filename.endswith(_ENGINE[1]):
            engine_only = engine_only or not texts
        if not placed and not code.co_filename.startswith(_DETOURS):
            # Torch's own Python code uses operators as well, so this need not be a frame of the user's.
            placed = True
            operator = _at_operator(code, frame.f_lasti)
        if code.co_filename.startswith(_FOREIGN) or code.co_filename.startswith("<frozen"):
            continue
        line = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
        texts.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {line}")
    return texts, operator, engine_only or not texts


def _at_operator(code: CodeType, instruction: int) -> bool:
    name = dis.opname[code.co_code[instruction]] if 0 <= instruction < len(code.co_code) else ""
    return name.startswith(_OPERATORS) and name != "BINARY_SUBSCR"


def checkpoint_code() -> list[tuple[CodeType, bool]]:
    """Code of the functions of activation checkpointing through which a region runs, and whether it runs again there."""
    # In newer versions of torch, what is called passes on to another function.
    runs = getattr(checkpointing, "_checkpoint_impl", checkpointing.checkpoint)
    return [
        (inspect.unwrap(runs).__code__, False),
        (checkpointing.CheckpointFunction.forward.__code__, False),
        (checkpointing.CheckpointFunction.backward.__code__, True),
        *((code, True) for code in _inner("_checkpoint_hook", "unpack_hook")),
    ]


def border_code() -> list[tuple[CodeType, bool]]:
    """Code in which the region around it does not go on, and whether that is because it starts a backward pass.

    What checkpointing does for itself differs between its two kinds, and is nothing of the program's.
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
    engine = getattr(torch.autograd.graph, "_engine_run_backward", None)
    return [
        *((code, False) for code in (*own, *_inner("_recomputation_hook", "pack_hook"))),
        *([(engine.__code__, True)] if engine is not None else []),
    ]


def _inner(owner: str, name: str) -> list[CodeType]:
    """Code of a function that is made in the constructor of a class of checkpointing's."""
    made = getattr(checkpointing, owner, None)
    constants = made.__init__.__code__.co_consts if made is not None else ()
    return [constant for constant in constants if isinstance(constant, CodeType) and constant.co_name == name]


def region(frame: FrameType) -> int:
    """Identity of the checkpointed region that a frame of `checkpoint_code` runs: the same in both passes."""
    values: dict[str, Any] = frame.f_locals
    # The function that runs a region again without reentrance has a variable of each name.
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
    """A number that no other region has: addresses are given again."""
    number = getattr(owner, "_probe_region", None)
    if number is None:
        number = owner._probe_region = next(_regions)
    return int(number)
