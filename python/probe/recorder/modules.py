"""Records module calls, and keeps track of which module other ops run in.

Uses torch's hooks for all modules, so nothing is attached to the user's model: it can be copied and pickled.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from probe.patterns import path_of, plain_path
from probe.private.compiling import compiling
from probe.private.guards import without_functions
from probe.recorder.inject import Misfit
from probe.recorder.naming import module_stem

#: True only for a compiler that traces the hooks, which versions before 2.6 do.
_is_compiling = compiling()

if TYPE_CHECKING:
    from probe._core import Call, Edges, Recorder
    from probe.private.fastpaths import FastPaths
    from probe.recorder.gradients import Gradients
    from probe.recorder.inject import Injection
    from probe.recorder.perturb import Perturbation
    from probe.recorder.updates import Update


#: Attribute under which `torch.compile` keeps the original module.
_COMPILED = "_orig_mod"


class _Entered:
    """Call under way: a module call or an optimizer step."""

    __slots__ = ("asks", "call", "edges", "frame", "module", "period", "scoped", "update")

    def __init__(self, module: torch.nn.Module | None, frame: FrameType, period: int) -> None:
        self.module = weakref.ref(module) if module is not None else None
        #: Frame that it runs in: once that is gone from the stack, so is the call, whether or not a hook was called.
        self.frame = frame
        #: Period of the recording that saw it begin.
        self.period = period
        self.call: Call | None = None
        self.edges: Edges | None = None
        self.update: Update | None = None
        #: True if the recorder attributes ops to this call.
        self.scoped = False
        #: True if torch's question about modes is answered for it.
        self.asks = False


class Modules:
    """Watches the module calls of one recording."""

    def __init__(
        self,
        core: Recorder,
        record: bool,
        gradients: Gradients | None,
        parameter_gradients: Gradients | None,
        thread_began: Callable[[], bool],
        thread_ended: Callable[[], None],
        perturbation: Perturbation | None,
        injection: Injection | None = None,
        fast_paths: FastPaths | None = None,
    ) -> None:
        self._core = core
        self._record = record
        self._gradients = gradients
        self._parameter_gradients = parameter_gradients
        self._thread_began, self._thread_ended = thread_began, thread_ended
        self._perturbation = perturbation
        self._injection = injection
        self._fast_paths = fast_paths
        #: module -> (stem of its name, whether its calls are recorded)
        self._stems: weakref.WeakKeyDictionary[torch.nn.Module, tuple[str, bool]] = weakref.WeakKeyDictionary()
        self._roots: list[weakref.ref[torch.nn.Module]] = []
        self._local = threading.local()
        self._handles: list[Any] = []
        self._attached = False
        self._period = 0
        #: Outermost calls so far, of modules with parameters and of compiled functions.
        self.outermost = 0

    @property
    def attached(self) -> bool:
        """True if calls are being watched."""
        return self._attached

    @property
    def paths(self) -> list[str]:
        """Paths of all known modules."""
        return [path_of(f"{stem}.forward.0") or "" for stem, _ in self._stems.values()]

    def attach(self) -> None:
        """Starts watching."""
        if not self._attached:
            self._attached = True
            self._period += 1
            self._drop_ended(sys._getframe(1))
            self._hook()

    def detach(self) -> None:
        """Stops watching; calls under way stay open."""
        self._attached = False
        self._unhook()

    def silence(self) -> Callable[[], None] | None:
        """Watches nothing until the returned function is called. None if nothing is being watched."""
        if not self._handles:
            return None
        period = self._period
        self._unhook()

        def resume() -> None:
            if self._attached and self._period == period and not self._handles:
                self._hook()

        return resume

    def _hook(self) -> None:
        self._handles = [
            torch_module.register_module_forward_pre_hook(self._before),
            # Without keyword arguments: torch omits those when it reports an exception.
            torch_module.register_module_forward_hook(self._after, always_call=True),
        ]

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._fast_paths is not None:
            self._fast_paths.close()

    def path(self, module: torch.nn.Module) -> str:
        """Returns the path of a module; empty for the model itself and for an unknown module."""
        found = self._stems.get(module)
        return (path_of(f"{found[0]}.forward.0") or "") if found is not None and found[0] != module_stem("", module) else ""

    def finish_step(self) -> None:
        """Files the calls under way on this thread: they began in the step that ends."""
        self._drop_ended(sys._getframe(1))
        for entered in self._stack():
            self._file_unfinished(entered, "the step ended inside this call")

    def enter_scope(self, name: str, update: Update | None, frame: FrameType) -> None:
        """Attributes ops on this thread to `name`, the step of an optimizer, until `leave_scope` or the end of
        `frame`.

        `update` is its record, if it has one.
        """
        self._drop_ended(frame)
        entered = _Entered(None, frame, self._period)
        entered.update = update
        entered.call = update.call if update is not None else None
        self._core.enter_scope(name)
        entered.scoped = True
        self._stack().append(entered)

    def leave_scope(self) -> None:
        """Ends the innermost scope, and any calls that an exception has left open in it."""
        stack = self._stack()
        if any(entered.module is None for entered in stack):
            while stack[-1].module is not None:
                self._leave(stack, None, raised=True)
            if (update := stack[-1].update) is not None:
                update.made()
            self._leave(stack, None, raised=False)

    def suspend_scope(self) -> None:
        """Leaves the innermost scope temporarily, until `enter_scope` enters it again with the same record."""
        stack = self._stack()
        if stack and stack[-1].module is None:
            stack[-1].call = None
            self._leave(stack, None, raised=False)

    def parameters(self) -> dict[int, str]:
        """Returns the paths of the parameters of all known modules, by identity; the first path for a shared one."""
        found: dict[int, str] = {}
        for module, (stem, _) in list(self._stems.items()):
            path = _path(stem) if stem != module_stem("", module) else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    found.setdefault(id(parameter), f"{path}.{name}".lstrip("."))
        return found

    def watch_parameters(self) -> None:
        """Starts watching the gradients of all known modules' parameters."""
        if self._parameter_gradients is not None:
            seen: set[int] = set()
            for module, (stem, _) in list(self._stems.items()):
                # A parameter shared by several modules belongs to the first.
                if not seen.intersection(id(p) for p in module._parameters.values() if p is not None):
                    self._parameter_gradients.watch_parameters(stem, module)
                seen.update(id(p) for p in module._parameters.values() if p is not None)

    def add(self, models: torch.nn.Module | Iterable[torch.nn.Module]) -> None:
        """Registers models, so that their modules have the paths that the user knows."""
        if isinstance(models, torch.nn.Module):
            self._name(models, "")
        else:
            for index, model in enumerate(models):
                self._name(model, f"{index}.")

    def _name(self, root: torch.nn.Module, prefix: str) -> None:
        if root not in self._stems:
            self._roots.append(weakref.ref(root))
        alone = not root._modules
        for path, module in root.named_modules():
            path = ".".join(word for word in path.split(".") if word != _COMPILED)
            if module not in self._stems and not _compiles(module):
                # The root's call is the whole run; comparable tools do not list it.
                recorded = self._record and (bool(path) or alone)
                self._stems[module] = (module_stem(f"{prefix}{path}".rstrip("."), module), recorded)

    def _known(self, module: torch.nn.Module, depth: int) -> tuple[str, bool]:
        found = self._stems.get(module)
        if found is not None:
            return found
        if depth:
            # The model has grown since it was named.
            for reference in self._roots:
                root = reference()
                if root is not None and any(part is module for part in root.modules()):
                    self._name(root, "")
            found = self._stems.get(module)
            if found is not None:
                return found
        first = not self._roots
        self._name(module, "" if first or not module._modules else f"{type(module).__name__}.")
        if self._parameter_gradients is not None:
            for part in module.modules():
                self._parameter_gradients.watch_parameters(self._stems[part][0], part)
        return self._stems[module]

    def _stack(self) -> list[_Entered]:
        stack: list[_Entered] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _drop_ended(self, frame: FrameType) -> None:
        """Leaves the calls that do not enclose `frame`: an interrupt ended them, or the recording was off when they
        ended."""
        stack = self._stack()
        while stack:
            wanted, at = stack[-1].frame, frame
            while at is not wanted and at.f_back is not None:
                at = at.f_back
            if at is wanted:
                return
            if stack[-1].period != self._period:
                self._file_unfinished(stack[-1], "the recording was stopped inside this call")
            self._leave(stack, None, raised=True)

    def _file_unfinished(self, entered: _Entered, reason: str) -> None:
        call, entered.call = entered.call, None
        if call is not None:
            call.remark(reason)
            self._core.after(call, None)

    def _before(self, module: torch.nn.Module, args: Any) -> Any:
        """Returns None, or replacement arguments for the call."""
        moved = None
        if _compiles(module) or _is_compiling():
            return None
        try:
            # Torch's hook for all modules does not receive the keyword arguments; its caller has them.
            frame = sys._getframe(1)
            stack = self._stack()
            if stack:
                self._drop_ended(frame)
            if not stack:
                self.outermost += next(iter(module.parameters()), None) is not None
                self._local.began = self._thread_began()
                if self._perturbation is not None:
                    moved = args = self._perturbation.before(module, args, frame.f_locals.get("kwargs", {}))
            with without_functions():
                stem, recorded = self._known(module, len(stack))
                kwargs = frame.f_locals.get("kwargs", {})
                parameters = {k: p for k, p in module._parameters.items() if p is not None} if recorded else {}
                entered = _Entered(module, frame, self._period)
                entered.call = self._core.enter_module(stem, recorded, args, kwargs, parameters)
                if self._injection is not None and entered.call is not None and self._injection.wants(entered.call.name, None):
                    moved, named = self._injection.inputs(entered.call.name, args, kwargs, frozenset())
                    kwargs.update(named)
                    args = moved
                    # Its inputs are recorded as they are now.
                    self._core.leave_module()
                    self._core.withdraw(entered.call)
                    entered.call = self._core.enter_module(stem, recorded, args, kwargs, parameters)
                entered.scoped = entered.call is not None
                entered.asks = self._fast_paths is not None and self._fast_paths.enter(module)
                stack.append(entered)
                if entered.call is not None and recorded and self._gradients is not None:
                    entered.edges = self._gradients.before(entered.call, args, kwargs, module=True)
        except Misfit:
            raise
        except Exception as error:
            self._core.fault(f"call of {type(module).__name__}: {error}")
        return moved

    def _after(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if _is_compiling():
            return
        try:
            stack = self._stack()
            # Inner calls were left by an exception that the hooks were not told of.
            while stack and not _is_of(stack[-1], module):
                if not any(_is_of(entered, module) for entered in stack):
                    return
                self._leave(stack, None, raised=True)
            if stack:
                # Inside one of the program's own handlers an exception is set as well; torch's is in the caller's
                # frame.
                trace = sys.exc_info()[2] if result is None else None
                self._leave(stack, result, raised=trace is not None and trace.tb_frame is sys._getframe(1))
        except Exception as error:
            self._core.fault(f"call of {type(module).__name__}: {error}")

    def _leave(self, stack: list[_Entered], result: Any, raised: bool) -> None:
        entered = stack.pop()
        if entered.asks and self._fast_paths is not None:
            self._fast_paths.leave()
        if entered.scoped:
            self._core.leave_module()
        call = entered.call
        if call is not None:
            with without_functions():
                if raised and call.recomputed:
                    # Checkpointing stops a recomputation as soon as it has what it needs.
                    call.remark("recomputation ended early")
                    self._core.after(call, None)
                elif raised:
                    self._core.raised(call, sys.exc_info()[1])
                else:
                    self._core.after(call, result)
                    if entered.edges is not None and self._gradients is not None:
                        self._gradients.after(call, entered.edges, result)
        if not stack and getattr(self._local, "began", False):
            self._local.began = False
            self._thread_ended()


@functools.cache
def _path(stem: str) -> str:
    """Returns the path in the names of a module's calls, as parameters have it."""
    return plain_path(path_of(f"{stem}.forward.0") or "")


def _compiles(module: torch.nn.Module) -> bool:
    """Returns true if this is `torch.compile`'s wrapper around a module: the module inside is the user's."""
    return type(module).__name__ == "OptimizedModule"


def _is_of(entered: _Entered, module: torch.nn.Module) -> bool:
    return entered.module is not None and entered.module() is module
