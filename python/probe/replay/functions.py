"""The function behind an op's name. Names come from files, so only functions of tensors are found."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from probe.private import dispatcher
from probe.replay.recorded import NotReplayed

#: Dispatcher namespaces whose ops do more than compute.
_NOT_COMPUTING = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "debugprims", "inductor", "prepacked", "profiler", "rpc", "symm_mem", "streams"})

#: Functions that make a tensor of nothing but numbers; their type is the type of the result.
MAKERS = frozenset({"zeros", "ones", "full", "arange", "tensor", "eye", "linspace", "logspace", "scalar_tensor", "tril_indices", "triu_indices"})

#: Arguments that name files.
_OF_FILES = frozenset({"filename", "file", "path"})

Function = Callable[..., Any]


@functools.cache
def resolve(api: str) -> Function:
    """Returns the function called `api`: `Functional.gelu`, `Tensor.add_`, `Aten.addmm`. Raises NotReplayed."""
    space, _, name = api.partition(".")
    found: Function | None
    if space in ("Functional", "Torch", "Tensor"):
        home: Any = {"Functional": torch.nn.functional, "Torch": torch, "Tensor": torch.Tensor}[space]
        found = home
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None or not _takes_tensors(found, space, name):
            raise NotReplayed(f"{api} is no function of tensors in this torch")
        return found
    if space in ("NPU", "Npu"):
        return _npu(name)
    if space == "Optimizer":
        raise NotReplayed("a whole optimizer step is no function of recorded tensors; level op records its parts")
    return _operator(space[:1].lower() + space[1:], name)


def _takes_tensors(found: Any, space: str, name: str) -> bool:
    if found in _overridable() or (space == "Torch" and name in MAKERS):
        return True
    # Torch does not list all of them: hardswish and fill, and operators under another spelling, as `__iadd__` and `__matmul__`.
    return callable(found) and any(_computes(each) for each in (name, name.strip("_").removeprefix("i")))


def _computes(name: str) -> bool:
    """Returns true if an operator of torch with this name takes tensors, and opens no file."""
    try:
        schemas = dispatcher.schemas_of(_operator("aten", name))
    except NotReplayed:
        return False
    return any(str(argument.type) == "Tensor" for schema in schemas for argument in schema.arguments)


@functools.cache
def _overridable() -> frozenset[Any]:
    """Every function that torch lets subclasses of tensors override: those that take tensors and compute."""
    return frozenset(function for functions in torch.overrides.get_overridable_functions().values() for function in functions)


def _operator(space: str, name: str) -> Function:
    if space in _NOT_COMPUTING:
        raise NotReplayed(f"{space}::{name} does more than compute")
    packet = getattr(getattr(torch.ops, space, None), name, None)
    if not isinstance(packet, dispatcher.OPERATORS):
        raise NotReplayed(f"no operator {space}::{name} here; import the extension that has it first (--import)")
    if any(argument.name in _OF_FILES for schema in dispatcher.schemas_of(packet) for argument in schema.arguments):
        raise NotReplayed(f"{space}::{name} opens files")
    return packet


def _npu(name: str) -> Function:
    """Returns a function of torch_npu, or its float64 formula where there is no NPU."""
    try:
        return _operator("npu", name)
    except NotReplayed:
        raise NotReplayed(f"torch_npu.{name} needs torch_npu") from None


@functools.cache
def draws(api: str) -> bool:
    """Returns true for functions that may draw random numbers; many do only with certain arguments."""
    if any(word in api for word in ("dropout", "attention", "rrelu")):
        return True
    return any(torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags for packet in _packets(api) for overload in packet.overloads())


def is_unwritten(api: str) -> bool:
    """Returns true for functions that return memory which nobody wrote."""
    name = api.rpartition(".")[2].strip("_")
    return name.startswith(("empty", "new_empty")) or name in ("set", "resize", "resize_as")


@functools.cache
def views(api: str) -> bool:
    """Returns true for functions whose results always share the memory of an argument: nothing is computed."""
    returned = [value for packet in _packets(api) for schema in dispatcher.schemas_of(packet) for value in schema.returns]
    return bool(returned) and all(value.alias_info is not None and not value.alias_info.is_write for value in returned)


def _packets(api: str) -> list[Any]:
    name = api.rpartition(".")[2]
    found = getattr(torch.ops.aten, name, None) if not name.startswith("__") else None
    return [found] if isinstance(found, dispatcher.OPERATORS) else []
