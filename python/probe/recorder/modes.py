"""Torch's two interception points. Nothing is replaced: a mode is pushed when recording starts and removed when it
stops.

A handler passes arguments, results and exceptions through unchanged; the recorder's own failures stay in the
recorder.
"""

from __future__ import annotations

import functools
import sys
from contextlib import nullcontext
from types import MethodType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from probe.private.dispatcher import OPERATORS, schema_of
from probe.private.modes import SEED, handles, remove, without_overrides
from probe.private.tensors import memory_of
from probe.recorder.naming import BACKWARD, Operator, api_names, describe_op, late_name, operator

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.recorder.gradients import Gradients
    from probe.recorder.inject import Injection
    from probe.recorder.integrity import Integrity


class OpMode(TorchDispatchMode):
    """Records every op that reaches the dispatcher below autograd and autocast: forward, backward, optimizer,
    recomputation."""

    def __init__(self, core: Recorder) -> None:
        super().__init__()
        #: False if the recording was stopped while another thread had this mode: it passes ops through until it is
        #: removed.
        self.on = True
        # Torch calls this attribute with the op, and insists on a method of the mode.
        self.__torch_dispatch__ = MethodType(core.run_op, self)  # type: ignore[method-assign]


class InjectedOpMode(TorchDispatchMode):
    """Records as `OpMode` does, with values of another run in place of the ops' own. Views are left alone: they compute nothing, and what is
    written to them must reach the program's memory. So are tensors of classes with a handler of their own."""

    def __init__(self, core: Recorder, injection: Injection) -> None:
        super().__init__()
        #: See `OpMode`.
        self.on = True
        self._core = core
        self._injection = injection

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        writes = _replaceable(func)
        if writes is None or not self.on or types:
            return self._core.run_op(self, func, types, args, kwargs)
        call = self._core.open_op(func)
        if call is None:
            return func(*args, **kwargs)
        injected = self._injection.wants(call.name, call.scope)
        try:
            if injected:
                written = frozenset(f"input.{place}" if place < len(args) else f"kwarg.{name}" for place, name in writes)
                args, kwargs = self._injection.inputs(call.name, args, kwargs, written)
            self._core.read_op(call, args, kwargs)
            result = func(*args, **kwargs)
        except BaseException as error:
            self._core.raised(call, error)
            raise
        if injected:
            given = [args[place] if place < len(args) else kwargs.get(name) for place, name in writes]
            result = self._injection.results(call.name, result, (args, kwargs), given)
        self._core.close_op(call, func, args, kwargs, result)
        return result


@functools.cache
def _replaceable(func: Any) -> list[tuple[int, str]] | None:
    """Returns the positions and names of the arguments that an op writes to; None for one whose values are not replaced: a view, and what is
    not recorded."""
    name, writes, _, collective = describe_op(func)
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema_of(func).returns)
    return None if not name or views or collective else writes


class ApiMode(TorchFunctionMode):
    """Records torch functions and tensor methods as the user calls them; calls inside them are not seen again."""

    def __init__(
        self, core: Recorder, gradients: Gradients | None, integrity: Integrity | None = None, injection: Injection | None = None
    ) -> None:
        super().__init__()
        #: See `OpMode`.
        self.on = True
        self._core = core
        self._before = core.before_api
        self._after = core.after
        self._gradients = gradients
        self._injection = injection
        self._inside = nullcontext if integrity is None else integrity.inside
        self._names = api_names()
        #: Functions found not to return tensors, and attributes: the core calls them.
        self.questions: set[Any] = set()
        # As in `OpMode`. Most of what a training step asks torch for are attributes of parameters, in the optimizer.
        self.__torch_function__ = MethodType(core.run_api, self)  # type: ignore[method-assign]

    def call(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function that may compute something, and records it."""
        try:
            name = self._names.get(func)
        except TypeError:
            # Not hashable, so not one of torch's.
            return func(*args, **kwargs)
        op: Operator | None = None
        if name is None:
            if func in BACKWARD:
                return self._backward(func, types, args, kwargs)
            op = operator(func) if isinstance(func, OPERATORS) else None
            name = (op.name, None) if op is not None else late_name(func)
            if name is None:
                if isinstance(func, MethodWrapperType):
                    # Reads or writes an attribute.
                    self.questions.add(func)
                return func(*args, **kwargs)
        if not self.on or (func is torch.ones_like and sys._getframe(1).f_code is SEED):
            return func(*args, **kwargs)
        call = self._before(name[0], name[1], args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        injected = self._injection is not None and self._injection.wants(call.name, call.scope)
        if injected and self._injection is not None:
            # Its inputs are recorded as they are then.
            self._core.withdraw(call)
            args, kwargs = self._injection.inputs(call.name, args, kwargs, _paths_written(name[0], args, kwargs))
            call = self._before(name[0], name[1], args, kwargs)
            if call is None:
                return func(*args, **kwargs)
        edges = self._gradients.before(call, args, kwargs) if self._gradients is not None else None
        try:
            with self._inside(call.name):
                result = func(*args, **kwargs)
        except BaseException as error:
            self._core.raised(call, error)
            raise
        if injected and self._injection is not None:
            result = self._injection.results(call.name, result, (args, kwargs))
        out = kwargs.get("out")
        changed = _changed(op, args, kwargs) if op is not None else []
        if out is None and not changed and not _holds_tensor(result) and not name[0].endswith("__setitem__"):
            # A query about a tensor (its size, whether it is a leaf), not a computation.
            self._core.withdraw(call)
            self.questions.add(func)
            return result
        written = out if out is not None else tuple(changed) if changed else args[0] if args else result
        if out is not None or changed or _writes(name[0]):
            self._core.forget(memory_of(written))
        elif (places := _RUNNING_STATISTICS.get(name[0])) is not None:
            self._core.forget(memory_of((*args[places], *(kwargs.get(given) for given in ("running_mean", "running_var")))))
        self._after(call, written if result is None else result)
        if edges is not None and self._gradients is not None:
            self._gradients.after(call, edges, result)
        return result

    def _backward(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs a backward pass with the recording on; torch switches it off while a handler runs."""
        if any(handles(kind) for kind in types) or not self.on:
            # A subclass has a handler of its own, which comes next.
            return func(*args, **kwargs)
        self.__enter__()
        try:
            return without_overrides(func)(*args, **kwargs)
        finally:
            # The recording may have been stopped meanwhile.
            remove(self)


def _changed(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the argument tensors that an op writes to."""
    given = [args[place] if place < len(args) else kwargs.get(name) for place, name in op.writes]
    lists = (each if isinstance(each, (tuple, list)) else (each,) for each in given)
    return [tensor for each in lists for tensor in each if isinstance(tensor, torch.Tensor)]


#: Positions of the running statistics that functions update without torch counting the write.
_RUNNING_STATISTICS = {
    **dict.fromkeys(("Functional.batch_norm", "Functional.instance_norm"), slice(1, 3)),
    **dict.fromkeys(("Torch.batch_norm", "Torch.instance_norm", "Torch.native_batch_norm"), slice(3, 5)),
}

def _paths_written(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[str]:
    """Returns the paths of arguments that a function may write to."""
    found = {"kwarg.out", "kwarg.running_mean", "kwarg.running_var"}
    places = range(len(args))
    if _writes(name) or kwargs.get("inplace") or any(args[place] is True for place in places[1:]):
        # A flag without a name may be `inplace`.
        found.add("input.0")
    return frozenset(found.union(f"input.{place}" for place in places[_RUNNING_STATISTICS.get(name, slice(0))]))


#: Operators that write to their first operand: `x += y`.
_IN_PLACE = frozenset(
    f"__{word}__"
    for word in (
        "setitem", "iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "idiv", "imod", "ipow", "iand", "ior", "ixor",
        "ilshift", "irshift",
    )
)  # fmt: skip


@functools.cache
def _writes(name: str) -> bool:
    """Returns true if a function writes to its first argument, judged by its name."""
    last = name.rpartition(".")[2]
    return last in _IN_PLACE or (last.endswith("_") and not last.endswith("__"))


def _holds_tensor(value: Any, depth: int = 3) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (tuple, list)) and depth:
        return any(_holds_tensor(item, depth - 1) for item in value)
    return False
