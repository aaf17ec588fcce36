"""Observes the calls of a model, eager or compiled, and stays out of traced code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from probe.private.compiling import compiling
from probe.config_check import flags
from probe.patches import Patches


class CallWatch:
    """Calls `on_call(args, kwargs)` before each forward call of a model."""

    def __init__(self, on_call: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        self._on_call = on_call
        self._model: Any = None
        self._hook: Any = None
        self._patches = Patches()
        #: Compiler used on the model after it was handed over.
        self.compiler: str | None = None

    def start(self, patches: Patches) -> None:
        """Watches for compilation of the model until `patches` are undone."""
        torch = sys.modules["torch"]
        patches.everywhere([(torch, "compile", self._compiling)])
        patches.attribute(torch.nn.Module, "compile", self._compiling)

    def watch(self, model: Any, called: Any) -> None:
        """Waits for calls of `called`: `model`, one of its parts, or a module that contains it."""
        self._model = model
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        seen = untraced(lambda _, args, kwargs: self._on_call(args, kwargs))
        if getattr(called, "_compiled_call_impl", None) is None:
            self._hook = called.register_forward_pre_hook(seen, prepend=True, with_kwargs=True)
            return

        # Compiled in place: its hooks are part of what is compiled.
        def outside(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                seen(called, args, kwargs)
                return original(*args, **kwargs)

            return call

        self._patches.attribute(called, "_compiled_call_impl", outside)

    def stop(self) -> None:
        """Stops waiting."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._patches.undo()
        self._model = None

    def _compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # For `torch.compile` and `Module.compile`: the model is then called as part of the compiled result.
        @functools.wraps(original)
        def compile(*arguments: Any, **keywords: Any) -> Any:
            made = original(*arguments, **keywords)
            try:
                whole = arguments[0] if made is None and arguments else made
                if self._model is not None and holds(whole, self._model):
                    self.compiler = flags.compiler(whole)
                    self.watch(self._model, whole)
            except Exception:
                # The model's own calls, or its optimizer's steps, are still seen.
                pass
            return made

        return compile


def untraced(hook: Callable[..., None]) -> Callable[..., None]:
    """Wraps a hook to do nothing while a graph is traced: it would break the graph, and with it a program that wants
    one graph."""
    is_compiling = compiling()

    def outside(*arguments: Any) -> None:
        if not is_compiling():
            hook(*arguments)

    return outside


def holds(whole: Any, part: Any) -> bool:
    """Returns true if `whole` is a module that contains `part`, or is `part`."""
    return isinstance(whole, sys.modules["torch"].nn.Module) and any(module is part for module in whole.modules())
