"""Ops of the dispatcher: their names, their schemas, and what is behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from probe.private import safe

#: Functions of `torch.nn.functional` as they are below Python.
FUNCTIONAL: Any = torch._C._nn

#: Recurrent layers and the like.
VF: Any = torch._VF if hasattr(torch._VF, "lstm") else torch


#: What ops are below `torch.ops`: by name, and one overload of a name.
OPERATORS = (OpOverloadPacket, OpOverload)


def all_names() -> list[str]:
    """Every op that is registered: `aten::add.Tensor`."""
    return list(torch._C._dispatch_get_all_op_names())


def schema_of(func: Any) -> Any:
    """Name and arguments of an op."""
    return func._schema


def schemas_of(func: Any) -> list[Any]:
    """Those of an op as a program calls it, `torch.ops.mine.f` or one overload of it; none of any other function."""
    if isinstance(func, OpOverloadPacket):
        return [getattr(func, overload)._schema for overload in func.overloads()]
    return [func._schema] if isinstance(func, OpOverload) else []


#: Batch norms that average update these, and most of their schemas do not say so; nor does torch count the write.
_RUNNING = frozenset({"running_mean", "running_var"})
_AVERAGE = frozenset({"momentum", "exponential_average_factor"})


def written(func: Any) -> list[tuple[int, str]]:
    """Place and name of the arguments that an op writes to; of several overloads, that one of them does."""
    found: dict[tuple[int, str], None] = {}
    for schema in schemas_of(func):
        averages = any(argument.name in _AVERAGE for argument in schema.arguments)
        for place, argument in enumerate(schema.arguments):
            declared = argument.alias_info is not None and argument.alias_info.is_write
            if declared or (averages and argument.name in _RUNNING):
                found[place, argument.name] = None
    return list(found)


def behind(func: Any) -> Callable[..., Any]:
    """What an op hands its arguments on to, where it does nothing but that, and quick ways may be taken."""
    code = getattr(type(func).__call__, "__code__", None)
    if type(func) is OpOverload and code is not None and code.co_names == ("_op",) and not safe():
        return func._op
    return func


def work_of(result: torch.ScriptObject) -> Any:
    """The handle of a collective that is under way."""
    return torch._C._distributed_c10d.Work.unbox(result)
