"""Names of torch's functions and ops in a dump."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple, Optional

import torch

from probe.patterns import op_spelling
from probe.private.dispatcher import FUNCTIONAL, OPERATORS, VF, all_names, behind, schema_of, schemas_of, written
from probe.recorder.collectives import collectives

#: Methods that the interpreter calls for an operator, and the operator's own name: `x + y` arrives as `Tensor.add`.
_OPERATORS = {
    "add": "__add__",
    "sub": "__sub__",
    "mul": "__mul__",
    "div": "__truediv__",
    "true_divide": "__truediv__",
    "floor_divide": "__floordiv__",
    "pow": "__pow__",
    "remainder": "__mod__",
    "matmul": "__matmul__",
    "neg": "__neg__",
    "abs": "__abs__",
    "eq": "__eq__",
    "ne": "__ne__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "bitwise_not": "__invert__",
    "add_": "__iadd__",
    "sub_": "__isub__",
    "mul_": "__imul__",
    "div_": "__itruediv__",
}

#: Most wrappers followed around one function.
_MOST_LAYERS = 8

#: Functions that start a backward pass: they are passed through with the recording still on.
BACKWARD = frozenset({torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad})

#: Results of these say nothing about a computation, although they may be tensors.
_SILENT = frozenset({"requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "as_subclass",
                     "_is_view", "is_pinned", "share_memory_", "untyped_storage", "storage", "backward"})


@functools.cache
def api_names() -> dict[Callable[..., Any], tuple[str, str | None]]:
    """Returns every function that torch can intercept, with its name in a dump and its name as an operator."""
    return _gathered()


#: Functions that torch reported and that are none of its own.
_strangers: weakref.WeakSet[FunctionType] = weakref.WeakSet()


def late_name(function: Any) -> tuple[str, str | None] | None:
    """Returns the names of a function that has taken the place of one of torch's since `api_names` was first asked,
    and adds it there; None for any other function.

    Torch reports a call under whatever stands in its module by then, such as a wrapper that removes dropout.
    """
    if not isinstance(function, FunctionType) or function in _strangers:
        return None
    names = api_names()
    for other, name in _gathered().items():
        names.setdefault(other, name)
    if function not in names:
        _strangers.add(function)
    return names.get(function)


def _gathered() -> dict[Callable[..., Any], tuple[str, str | None]]:
    names: dict[Callable[..., Any], tuple[str, str | None]] = {}
    ops = {name.removeprefix("aten::").partition(".")[0] for name in all_names() if name.startswith("aten::")}
    # A function found in several places is named after the first: `F.gelu` is `torch._C._nn.gelu`.
    places: list[tuple[str, object]] = [
        ("Functional", torch.nn.functional),
        ("Tensor", torch.Tensor),
        ("Torch", torch),
        ("Torch.linalg", torch.linalg),
        ("Torch.fft", torch.fft),
        ("Torch.special", torch.special),
        ("Torch.nested", torch.nested),
        ("Torch.sparse", torch.sparse),
        ("Functional", FUNCTIONAL),
        ("VF", VF),
        ("Init", torch.nn.init),
        # The native base class of tensors.
        ("Tensor", torch.Tensor.__mro__[1]),
    ]
    # Functions of torch.distributed are not all interceptable; `collectives` sees them where they reach the
    # dispatcher.
    for prefix, place in places:
        # `Tensor.__neg__` is `Tensor.neg`: calls have the plain name, and operators are recognised by the call site.
        # `torch.dsmm` equals `torch.mm`: calls have the name of the op.
        for name in sorted(dir(place), key=lambda name: (name.startswith("__"), name not in ops, name)):
            if name in _SILENT or (name.startswith("_") and not name.startswith("__") and prefix != "Torch"):
                continue
            function = getattr(place, name, None)
            if not callable(function) or isinstance(function, type):
                continue
            operator = f"Tensor.{_OPERATORS[name]}" if prefix == "Tensor" and name in _OPERATORS else None
            for layer in _layers(function):
                # Unhashable objects are not torch functions.
                with contextlib.suppress(TypeError):
                    names.setdefault(layer, (f"{prefix}.{name}", operator))
    return names


def _layers(function: Any) -> Iterator[Any]:
    """Yields a function and those it wraps: torch_npu's `transfer_to_npu` replaces torch functions that take a device
    with its own, and torch reports the inner ones. Operators have names of their own."""
    for _ in range(_MOST_LAYERS):
        if function is None or isinstance(function, OPERATORS):
            return
        yield function
        function = getattr(function, "__wrapped__", None)


def describe_op(func: Any) -> tuple[str, list[tuple[int, str]], Callable[..., Any], bool]:
    """Describes a dispatcher op independently of its arguments.

    Returns its name (`aten.addmm.default` is `Aten.addmm`; empty for ops that compute nothing), position and name of
    the arguments it writes to, the callable that a call amounts to, and whether it is a collective, which is not done
    when it returns.
    """
    name = schema_of(func).name
    if name.startswith("profiler::"):
        return "", [], func, False
    return _stem(name), written(func), behind(func), func in collectives()


def _stem(name: str) -> str:
    """Returns the name in a dump of an op registered as `name`: `aten::addmm` is `Aten.addmm`."""
    return op_spelling("torch.ops." + name.replace("::", "."))


#: Namespaces of torch's own ops: those that implement functions, which dispatch modes and Python kernels call
#: individually, and those with which torch moves data, runs collectives, and compiles.
_OF_TORCH = frozenset({
    "aten", "prim", "prims", "rngprims", "debugprims", "profiler", "inductor", "fsdp", "symm_mem", "c10d", "_c10d_functional",
    "_c10d_functional_autograd", "_dtensor", "_quantized",
})  # fmt: skip


def is_of_torch(namespace: str) -> bool:
    """Returns true for a namespace of torch's own ops."""
    return namespace in _OF_TORCH


class Operator(NamedTuple):
    """An op that a program calls directly: ops of extensions, such as the fused ones of torch_npu, have no other name
    in Python."""

    name: str
    #: Position and name of the arguments that it writes to.
    writes: list[tuple[int, str]]


@functools.cache
def operator(func: Any) -> Optional[Operator]:
    """Describes `torch.ops.mine.f` or one overload of it; None for any other function, and for torch's own."""
    schema = next(iter(schemas_of(func)), None)
    if schema is None or is_of_torch(schema.name.partition("::")[0]):
        return None
    return Operator(_stem(schema.name), written(func))


def module_stem(path: str, module: torch.nn.Module) -> str:
    """Returns a stem such as `Module.layers.0.mlp.MLP`, to which phase and number are added."""
    kind = type(module).__name__
    return f"Module.{path}.{kind}" if path else f"Module.{kind}.{kind}"
