"""The stacks of modes, and code that bypasses them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

#: Creates the gradient that a backward pass begins with: not a call of the program.
SEED = torch.autograd._make_grads.__code__


@functools.cache
def without_overrides(func: Any) -> Any:
    """Returns the same code without its check for modes: otherwise it would be handed back to the mode forever."""
    names = {name: _never for name in func.__globals__ if name.startswith("has_torch_function")}
    copy = FunctionType(func.__code__, {**func.__globals__, **names}, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _never(*args: Any) -> bool:
    return False


def handles(kind: type) -> bool:
    """Returns true if a tensor class has a handler of its own."""
    handler = getattr(kind, "__torch_function__", None)
    return getattr(handler, "__func__", handler) not in (
        torch.Tensor.__torch_function__.__func__,
        torch._C._disabled_torch_function_impl,
    )


def pushed() -> list[TorchFunctionMode | TorchDispatchMode]:
    """Returns the modes on this thread's stacks, whoever pushed them: an autograd thread has those of the thread that
    called it."""
    return [*overrides._get_current_function_mode_stack(), *_python_dispatch._get_current_dispatch_mode_stack()]


def remove(mode: TorchFunctionMode | TorchDispatchMode) -> bool:
    """Removes a mode from this thread's stack, even from below modes pushed after it. Returns false if it is not
    there."""
    return set_aside(mode) is not None


def set_aside(mode: TorchFunctionMode | TorchDispatchMode) -> Callable[[], None] | None:
    """Like `remove`; the returned function puts the mode back where it was. None if it is not on the stack."""
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
    """Repairs torch's flags that say whether modes are active.

    Each mode restores on exit the flags it found on entry. A mode removed from below others leaves them with flags
    that include it: torch would believe in a mode forever, and compile nothing any more.
    """
    within, within_users = False, False
    for mode in _python_dispatch._get_current_dispatch_mode_stack():
        for flags, value in (("old_dispatch_mode_flags", within), ("old_non_infra_dispatch_mode_flags", within_users)):
            if remembered := getattr(mode, flags, None):
                remembered[-1] = value
        # Before 2.5, all modes are the program's.
        within, within_users = True, within_users or not getattr(mode, "is_infra_mode", bool)()
    for flag, value in (("_is_in_torch_dispatch_mode", within), ("_is_in_non_infra_torch_dispatch_mode", within_users)):
        if hasattr(_python_dispatch, flag):
            setattr(_python_dispatch, flag, value)
