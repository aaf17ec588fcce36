"""Torch's two interception points. Nothing is replaced: a mode is pushed when recording starts and taken out when it stops.

A handler passes arguments, results and exceptions through as they are; the recorder's own faults stay in the recorder.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from probe.recorder.naming import BACKWARD, api_names

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.recorder.gradients import Gradients


#: Makes the gradient that a backward pass begins with: no call of the program's.
_SEED = torch.autograd._make_grads.__code__


class OpMode(TorchDispatchMode):
    """Every op that reaches the dispatcher below autograd and autocast: forward, backward, optimizer, recomputation."""

    def __init__(self, core: Recorder) -> None:
        super().__init__()
        #: False when the recording was stopped while another thread had this mode: it is passed through until it is gone.
        self.on = True
        # Torch calls what is found here with the op, and insists on a method of the mode.
        self.__torch_dispatch__ = MethodType(core.run_op, self)  # type: ignore[method-assign]


class ApiMode(TorchFunctionMode):
    """Torch functions and tensor methods as the user calls them; what runs inside them is not seen again."""

    def __init__(self, core: Recorder, gradients: Gradients | None) -> None:
        super().__init__()
        #: As in `OpMode`.
        self.on = True
        self._core = core
        self._before = core.before_api
        self._after = core.after
        self._gradients = gradients
        self._names = api_names()
        #: Functions that turned out not to return tensors.
        self._questions: set[Any] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs is None:
            kwargs = {}
        try:
            name = self._names.get(func)
        except TypeError:
            # Not hashable, so it is none of torch's.
            return func(*args, **kwargs)
        if name is None:
            if func in BACKWARD:
                return self._backward(func, types, args, kwargs)
            return func(*args, **kwargs)
        if func in self._questions or not self.on or (func is torch.ones_like and sys._getframe(1).f_code is _SEED):
            return func(*args, **kwargs)
        call = self._before(name[0], name[1], args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        edges = self._gradients.before(call, args, kwargs) if self._gradients is not None else None
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._core.raised(call, error)
            raise
        if not _holds_tensor(result) and not name[0].endswith("__setitem__"):
            # A question about a tensor (its size, whether it is a leaf), not a computation.
            self._core.withdraw(call)
            self._questions.add(func)
            return result
        if _writes(name[0]) or "out" in kwargs:
            self._core.forget(args[0] if args else result)
        self._after(call, args[0] if result is None and args else result)
        if edges is not None and self._gradients is not None:
            self._gradients.after(call, edges, result)
        return result

    def _backward(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs a backward pass with the recording on, which torch switches off while a handler runs."""
        if any(_handles(kind) for kind in types) or not self.on:
            # Of a subclass with a handler of its own, which comes next.
            return func(*args, **kwargs)
        self.__enter__()
        try:
            return _without_dispatch(func)(*args, **kwargs)
        finally:
            # The recording may have been stopped meanwhile.
            remove(self)


@functools.cache
def _without_dispatch(func: Any) -> Any:
    """The same code, which does not ask whether there is a mode: it would be handed back to the mode without end."""
    names = {name: _never for name in func.__globals__ if name.startswith("has_torch_function")}
    copy = FunctionType(func.__code__, {**func.__globals__, **names}, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _handles(kind: type) -> bool:
    """Whether a class of tensors has a handler of its own."""
    handler = getattr(kind, "__torch_function__", None)
    return getattr(handler, "__func__", handler) not in (
        torch.Tensor.__torch_function__.__func__,
        torch._C._disabled_torch_function_impl,
    )


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
    """Whether a function writes to its first argument, by its name."""
    last = name.rpartition(".")[2]
    return last in _IN_PLACE or (last.endswith("_") and not last.endswith("__"))


def _never(*args: Any) -> bool:
    return False


def _holds_tensor(value: Any, depth: int = 3) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (tuple, list)) and depth:
        return any(_holds_tensor(item, depth - 1) for item in value)
    return False


def remove(mode: TorchFunctionMode | TorchDispatchMode) -> bool:
    """Takes a mode off this thread's stack, also from below modes that were pushed after it. False if it is not there."""
    return set_aside(mode) is not None


def set_aside(mode: TorchFunctionMode | TorchDispatchMode) -> Callable[[], None] | None:
    """As `remove`; what it returns puts the mode back where it was. None if it is not on the stack."""
    dispatch = isinstance(mode, TorchDispatchMode)
    module: Any = _python_dispatch if dispatch else overrides
    stack = _python_dispatch._get_current_dispatch_mode_stack() if dispatch else overrides._get_current_function_mode_stack()
    found = [index for index, other in enumerate(stack) if other is mode]
    if not found:
        return None
    height = len(stack) - 1 - found[-1]

    def below(act: Callable[[], Any]) -> None:
        above = [module._pop_mode() for _ in range(height)]
        act()
        for other in reversed(above):
            module._push_mode(other)
        if dispatch:
            settle_flags()

    below(lambda: mode.__exit__(None, None, None))
    return lambda: below(mode.__enter__)


def settle_flags() -> None:
    """Mends what torch remembers of whether there are modes.

    Each mode restores at its end what it found at its beginning. Taken out from below others, it leaves them with a
    memory of itself: torch would believe in a mode for ever after, and compile nothing any more.
    """
    within, within_users = False, False
    for mode in _python_dispatch._get_current_dispatch_mode_stack():
        for flags, value in (("old_dispatch_mode_flags", within), ("old_non_infra_dispatch_mode_flags", within_users)):
            if remembered := getattr(mode, flags, None):
                remembered[-1] = value
        within, within_users = True, within_users or not mode.is_infra_mode()
    for flag, value in (("_is_in_torch_dispatch_mode", within), ("_is_in_non_infra_torch_dispatch_mode", within_users)):
        if hasattr(_python_dispatch, flag):
            setattr(_python_dispatch, flag, value)
