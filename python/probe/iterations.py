"""Decides where iterations end: at an optimizer step, at calls of the model or of something the user names, or where
the program says so.

`step_on` is `optimizer`, `model`, `program`, or the name of a function or module. A returning function or an
optimizer step ends an iteration; a module call begins one. `probe.step()` in the program overrides all of them.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from probe import module_calls
from probe.private.compiling import compiling
from probe.messages import say_once
from probe.nearest import suggestion
from probe.patches import Patches
from probe.patterns import plain_path
from probe.settings import STEP_ON


class Torch:
    """Answers what the counting asks of a framework, for torch."""

    #: The class of modules, for messages.
    module_name = "nn.Module"

    @staticmethod
    def optimizer_steps(after: Callable[[Any], None]) -> Any:
        """Calls `after(optimizer)` after every optimizer step, until `remove` of the returned handle is called."""
        from probe import optimizers

        return optimizers.listen(after=after)

    @staticmethod
    def module_calls(began: Callable[[Any], None]) -> module_calls.Handle:
        """Calls `began(module)` before every module call, until `remove` of the returned handle is called."""
        return module_calls.listen(began)

    @staticmethod
    def parts(module: Any) -> Iterable[tuple[str, Any]]:
        """Returns a module and those inside it, with their paths."""
        found: Iterable[tuple[str, Any]] = module.named_modules()
        return found

    @staticmethod
    def has_parameters(module: Any) -> bool:
        """Returns true if the module, or one inside it, has parameters."""
        return next(iter(module.parameters()), None) is not None

    @staticmethod
    def is_module(value: Any) -> bool:
        """Returns true for a module."""
        return isinstance(value, sys.modules["torch"].nn.Module)

    @staticmethod
    def trains(module: Any) -> bool:
        """Returns true if a call of the module now is part of a training."""
        return bool(module.training and sys.modules["torch"].is_grad_enabled())

    @staticmethod
    def has_explained() -> bool:
        """Returns true if a line has said why calls of this framework are not recorded."""
        return False


class Iterations:
    """Counts the iterations of one program. Raises nothing if the functions passed in do not."""

    #: The framework of the program.
    framework: type[Torch] = Torch

    def __init__(self, step_on: str, ended: Callable[[], None], recount: Callable[[int], None]) -> None:
        """`ended()` is called at the end of each iteration. `recount(count)` is called once, when the program itself
        begins to mark iterations: the `count` iterations counted until then were one."""
        self.step_on = step_on
        self._ended = ended
        self._recount = recount
        #: Iterations counted automatically.
        self._guessed = 0
        self._source: _Optimizers | _Modules | _Named | None = None
        #: True once the program marks the end of iterations itself.
        self.told = step_on == "program"
        #: True if the program is known to call modules.
        self.modules = False

    def listen(self) -> None:
        """Starts counting."""
        if self.step_on == "optimizer":
            self._source = _Optimizers(self._guess, self.framework)
        elif self.step_on == "model":
            self._source = _Modules(self._guess, self.framework)
        elif self.step_on != "program":
            self._source = _Named(self.step_on, self._guess, self.framework)

    def remove(self) -> None:
        """Stops counting, except for the program's own marks."""
        if self._source is not None:
            self._source.remove()

    def step(self) -> None:
        """Records that the program marked the end of an iteration."""
        if self.told:
            self._ended()
            return
        self.told = True
        self.remove()
        if self._guessed:
            self._recount(self._guessed)
        else:
            self._ended()

    @property
    def split(self) -> bool:
        """True if the first iteration certainly went on after its end was counted."""
        return self._guessed > 1 or (isinstance(self._source, _Optimizers) and self._source.others)

    def recorded(self, number: int, modules: int) -> None:
        """Notes that iteration `number`, now ended, was recorded with this many module calls."""
        if modules:
            self.modules = True
        elif self.modules and not self.told and self.step_on == "optimizer":
            say_once(
                f"the optimizer ended iteration {number} without a call of a module in it; if it steps several times an iteration, "
                "count with step_on (--step-on): the name of a function that runs once an iteration, or 'program' and "
                "probe.step() in the program"
            )

    def describe(self) -> str:
        """Describes how iterations were counted, for a message."""
        if self.told:
            return "by calls of step()"
        if self.step_on == "optimizer":
            return "by the optimizer's steps"
        return "by calls of the model" if self.step_on == "model" else f"by calls of {self.step_on}"

    def advice(self) -> str | None:
        """Returns advice if nothing was counted; None if something was."""
        if self._guessed or self.told:
            return None
        if isinstance(self._source, _Named):
            return self._source.advice()
        if self.step_on == "model":
            return "no module with parameters was called a second time"
        return (
            "no optimizer stepped, so everything is iteration 0; count calls of the model with step_on 'model' "
            "(--step-on model), or call probe.step() in the program"
        )

    def _guess(self) -> None:
        if not self.told:
            self._guessed += 1
            self._ended()


class _Optimizers:
    """Optimizer steps; if there are several optimizers, the first one to step leads."""

    def __init__(self, ended: Callable[[], None], framework: type[Torch]) -> None:
        self._ended = ended
        self._leader: weakref.ref[Any] | None = None
        #: True if other optimizers have stepped since the leader's first step.
        self.others = False
        self._steps = framework.optimizer_steps(self._stepped)

    def remove(self) -> None:
        self._steps.remove()

    def _stepped(self, optimizer: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            self.others = True
            return
        self._ended()


class _Modules:
    """Calls of the model: the first called module with parameters, or a module around it that is called later."""

    def __init__(self, ended: Callable[[], None], framework: type[Torch]) -> None:
        self._ended = ended
        self._framework = framework
        self._leader: weakref.ref[Any] | None = None
        #: Modules that are not the model.
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()
        self._calls = framework.module_calls(self._called)

    def remove(self) -> None:
        self._calls.remove()

    def _called(self, module: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if module is leader:
            self._ended()
        elif module not in self._others and self._leads(module, leader):
            if leader is None and self._leader is not None:
                # Replaces a model that is gone.
                self._ended()
            self._leader = weakref.ref(module)
            self._others.update(part for _, part in self._framework.parts(module) if part is not module)
        else:
            self._others.add(module)

    def _leads(self, module: Any, leader: Any) -> bool:
        if leader is None:
            return self._framework.has_parameters(module)
        # An encoder runs before the model itself is called, as in `generate`.
        return any(part is leader for _, part in self._framework.parts(module))


class _Named:
    """Calls of a function, method or module named by the user."""

    def __init__(self, name: str, ended: Callable[[], None], framework: type[Torch]) -> None:
        self._name = name
        self._ended = ended
        self._framework = framework
        self._patches = Patches()
        #: True while a call of the function is under way whose beginning was not seen.
        self._under_way = False
        self._first = True
        self._found = False
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._seen: set[str] = set()
        self._calls: module_calls.Handle | None = None
        if not self._find():
            self._calls = framework.module_calls(self._called)

    def remove(self) -> None:
        self._patches.undo()
        if self._calls is not None:
            self._calls.remove()

    def advice(self) -> str:
        """Returns advice if no iteration has ended."""
        if self._found:
            return f"step_on: {self._name} ended no iteration: it was not called{' again' if not self._first else ''}"
        main = vars(sys.modules["__main__"])
        functions = (name for name, value in main.items() if callable(value) and not name.startswith("_"))
        known = {name for name in (*STEP_ON, *self._seen, *functions) if name}
        # Outermost names first.
        ordered = sorted(known, key=lambda name: (name.count("."), name))
        return f"step_on: {self._name!r} is neither a function that was found nor a module that was called; {suggestion(self._name, ordered)}"

    def _find(self) -> bool:
        """Wraps the function, if one of that name exists by now."""
        found = _resolve(self._name, self._framework)
        if found is None:
            return False
        owner, attribute, value = found
        self._found = True
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        self._under_way = code is not None and _is_running(code, sys._getframe(1))
        if isinstance(owner, type):
            self._patches.attribute(owner, attribute, self._counted)
        else:
            self._patches.everywhere([(owner, attribute, self._counted)])
        if self._calls is not None:
            self._calls.remove()
        return True

    def _counted(self, original: Any) -> Any:
        if isinstance(original, (staticmethod, classmethod)):
            return type(original)(self._counted(original.__func__))
        is_compiling = compiling()

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            if self._under_way:
                # The end of the first call was not seen: it was under way when it was found.
                self._under_way = False
                self._ended()
            result = original(*args, **kwargs)
            self._ended()
            return result

        return counted

    def _called(self, module: Any) -> None:
        named = self._known.get(module)
        if named is None:
            if self._find():
                return
            for path, part in self._framework.parts(module):
                self._known.setdefault(part, self._is_named(path, part))
                self._seen.update((plain_path(path), type(part).__name__))
            named = self._known[module]
        if named:
            self._found = True
            if not self._first:
                self._ended()
            self._first = False

    def _is_named(self, path: str, module: Any) -> bool:
        kind = type(module)
        return self._name in (path, plain_path(path), kind.__name__, f"{kind.__module__}.{kind.__qualname__}")


def _resolve(name: str, framework: type[Torch]) -> tuple[Any, str, Any] | None:
    """Finds a function: its owner, its attribute name and the function itself. A name without a module refers to the
    program's file."""
    words = name.split(".")
    places = [(".".join(words[:count]), words[count:]) for count in range(len(words) - 1, 0, -1)]
    for place, rest in [*places, ("__main__", words)]:
        owner = sys.modules.get(place)
        for word in rest[:-1]:
            owner = getattr(owner, word, None)
        value = getattr(owner, rest[-1], None)
        if callable(value) and not isinstance(value, type) and not framework.is_module(value):
            return owner, rest[-1], value
    return None


def _is_running(code: Any, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
