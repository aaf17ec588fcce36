"""Dispatcher ops: their names, their schemas, and what is behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from probe.private import safe

#: Native versions of the functions of `torch.nn.functional`.
FUNCTIONAL: Any = torch._C._nn

#: Native recurrent layers and similar functions.
VF: Any = torch._VF if hasattr(torch._VF, "lstm") else torch


#: Types of the ops below `torch.ops`: the packet of a name, and one overload of it.
OPERATORS = (OpOverloadPacket, OpOverload)


def all_names() -> list[str]:
    """Every registered op: `aten::add.Tensor`."""
    return list(torch._C._dispatch_get_all_op_names())


def names_that_draw() -> list[str]:
    """Names of the operators of torch that draw random numbers, as torch marks them: `dropout`, `normal_`, `randperm`."""
    overloads = (name.removeprefix("aten::").partition(".") for name in all_names() if name.startswith("aten::"))
    return sorted({
        name
        for name, _, overload in overloads
        if torch.Tag.nondeterministic_seeded in getattr(getattr(getattr(torch.ops.aten, name, None), overload or "default", None), "tags", ())
    })


def schema_of(func: Any) -> Any:
    """Returns name and arguments of an op."""
    return func._schema


def schemas_of(func: Any) -> list[Any]:
    """Returns the schemas of an op as a program calls it, `torch.ops.mine.f` or one overload of it; none for any
    other function."""
    if isinstance(func, OpOverloadPacket):
        return [getattr(func, overload)._schema for overload in func.overloads()]
    return [func._schema] if isinstance(func, OpOverload) else []


#: Averaging batch norms update these, although most of their schemas do not say so and torch does not count the
#: write.
_RUNNING = frozenset({"running_mean", "running_var"})
_AVERAGE = frozenset({"momentum", "exponential_average_factor"})


def written(func: Any) -> list[tuple[int, str]]:
    """Returns position and name of the arguments that an op writes to; for several overloads, those that any of them
    writes to."""
    found: dict[tuple[int, str], None] = {}
    for schema in schemas_of(func):
        averages = any(argument.name in _AVERAGE for argument in schema.arguments)
        for place, argument in enumerate(schema.arguments):
            declared = argument.alias_info is not None and argument.alias_info.is_write
            if declared or (averages and argument.name in _RUNNING):
                found[place, argument.name] = None
    return list(found)


def behind(func: Any) -> Callable[..., Any]:
    """Returns the callable that an op forwards its arguments to, if it does nothing else and quick ways are
    enabled."""
    code = getattr(type(func).__call__, "__code__", None)
    if type(func) is OpOverload and code is not None and code.co_names == ("_op",) and not safe():
        return func._op
    return func


def work_of(result: torch.ScriptObject) -> Any:
    """Returns the handle of a running collective."""
    return torch._C._distributed_c10d.Work.unbox(result)


#: Dispatch keys of kernels, by kind of device.
_KERNELS = {"cpu": torch._C.DispatchKey.CPU, "cuda": torch._C.DispatchKey.CUDA, "npu": torch._C.DispatchKey.PrivateUse1}


def kernel(func: Any, device: str) -> Callable[..., Any] | None:
    """Returns the kernel of an op for a kind of device, below all modes; None if it cannot be called by itself."""
    key, call = _KERNELS.get(device), getattr(func, "_op_dk", None)
    return None if key is None or call is None else lambda *args, **kwargs: call(key, *args, **kwargs)
