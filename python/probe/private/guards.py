"""Operations invisible to everyone else: to the program's modes and transforms, and to the recorder."""

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
    """Disables gradients, and hides functions and ops from all modes."""
    with torch.no_grad(), _disable_current_modes(), without_functions():
        yield


@contextlib.contextmanager
def without_dispatch() -> Iterator[None]:
    """Disables gradients, and hides ops from modes and subclasses."""
    with without_functions(), torch._C._DisableTorchDispatch(), torch.no_grad():
        yield


#: Guards against modes, casts and autograd, which would otherwise be consulted for every operation and view.
_BELOW = (torch._C._DisableTorchDispatch, torch._C._DisableAutocast, torch._C._AutoDispatchBelowAutograd)


def _below() -> tuple[Callable[[], Any], ...]:
    """Returns guards equivalent to [`_BELOW`]: a single one that excludes the same dispatch keys, according to torch,
    if it exists. Entering three takes longer than all the other work per tensor."""
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
    # Resolved on first use: by then everything relevant is imported.
    return (without_functions, *_below())


class Undisturbed:
    """Runs operations on the device undisturbed: no modes of the program or the recorder, no gradients, no casts.

    A class, because it is entered for every tensor and a generator would take longer than the operations.
    """

    __slots__ = ("_guards", "_layers")

    def __enter__(self) -> None:
        # Transforms that the program is in, such as `vmap`: last in, first out.
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
