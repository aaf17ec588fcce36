"""Operations that nobody else sees: neither modes and transforms of the program's, nor the recorder."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack, pop_dynamic_layer_stack, push_dynamic_layer_stack
from torch.utils._python_dispatch import _disable_current_modes

from probe.private import safe

#: Context manager: functions and methods are not intercepted.
without_functions = torch._C.DisableTorchFunction


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """No gradients, and no mode sees a function or an op."""
    with torch.no_grad(), _disable_current_modes(), without_functions():
        yield


@contextlib.contextmanager
def without_dispatch() -> Iterator[None]:
    """No gradients, and neither modes nor subclasses see an op."""
    with without_functions(), torch._C._DisableTorchDispatch(), torch.no_grad():
        yield


#: Below modes, casts and autograd, which would be asked of every operation and view.
_BELOW = (torch._C._DisableTorchDispatch, torch._C._DisableAutocast, torch._C._AutoDispatchBelowAutograd)


def _below() -> tuple[Callable[[], Any], ...]:
    """Guards that do what those of [`_BELOW`] do: one that excludes all that they exclude, as torch says, where there is such a guard. To
    enter three takes longer than to ask all the rest that is asked of a tensor."""
    one, excluded = getattr(torch._C, "_ExcludeDispatchKeyGuard", None), getattr(torch._C, "_dispatch_tls_local_exclude_set", None)
    if safe() or one is None or excluded is None:
        return _BELOW
    with contextlib.ExitStack() as stack:
        for guard in _BELOW:
            stack.enter_context(guard())
        keys = excluded()
    return (lambda: one(keys),)


@functools.cache
def _makes() -> tuple[Callable[[], Any], ...]:
    # Looked for when first wanted: by then all is imported that has a say.
    return (without_functions, *_below())


class Undisturbed:
    """Operations are the device's alone: no modes of the program's or the recorder's, no gradients, no casts.

    A class of its own: entered for every tensor, generators take longer than the operations.
    """

    __slots__ = ("_guards", "_layers")

    def __enter__(self) -> None:
        # Transforms that the program is in, such as `vmap`: the last one in is the first one out.
        self._layers = []
        while peek_interpreter_stack() is not None:
            self._layers.append(pop_dynamic_layer_stack())
        self._guards = [make() for make in _makes()]
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(None, None, None)
        while self._layers:
            push_dynamic_layer_stack(self._layers.pop())
