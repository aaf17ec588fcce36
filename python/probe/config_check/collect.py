"""Packs an unmodified program: the part of `probe config-check --collect -- python train.py` that runs inside the
program.

The command sets `PROBE_CONFIG_CHECK` (a JSON object, see `Order`) and makes each Python process call `install` once
it has imported torch. The model is the first `nn.Module` called from outside that an optimizer trains, or the module
whose method calls it; the rest is found in use. If no model is trained, it is the largest one that was called.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from probe.private.compiling import compiling
from probe.config_check import hyperparameters
from probe.config_check.calls import holds
from probe.config_check.collection import Collection
from probe.config_check.draft import Request
from probe.patches import Patches
from probe.config_check.seeds import watch
from probe.messages import say

#: Holds the order for every process below the command.
VARIABLE = "PROBE_CONFIG_CHECK"


@dataclass(frozen=True)
class Order:
    """Request of the command."""

    #: Path of the pack.
    output: str
    #: Number of forward calls to observe.
    steps: int = 1
    #: True if the run ends once it is packed.
    stop: bool = False
    #: Launch scripts and configuration files.
    files: list[str] = field(default_factory=list)
    #: A name unique to this run, the same for all processes below the command.
    run: str | None = None
    #: Working directory of the command; relative paths are resolved against it.
    directory: str | None = None
    #: Modification time of the previous file at `output`, in nanoseconds; None if there was none.
    before: int | None = None
    #: Process of the program itself, as opposed to those that it starts; None if unknown.
    program: int | None = None

    @classmethod
    def from_environment(cls) -> Order | None:
        """The order of the command above this process; None without one. Raises ValueError if it is malformed."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        values = json.loads(text)
        if not isinstance(values, dict) or not isinstance(values.get("output"), str):
            raise ValueError(f"{VARIABLE} in the environment names no output")
        directory = values.get("directory")
        base = Path(directory) if isinstance(directory, str) else Path.cwd()
        run = values.get("run")
        if run is not None and not (isinstance(run, str) and run.isalnum()):
            raise ValueError(f"{VARIABLE}: run is letters and digits")
        return cls(
            output=str(base / values["output"]),
            steps=int(values.get("steps", 1)),
            stop=bool(values.get("stop", False)),
            files=[str(base / str(name)) for name in values.get("files", [])],
            run=run,
            directory=str(base),
            before=None if values.get("before") is None else int(values["before"]),
            program=process(f"{VARIABLE}_PID"),
        )

    def is_packed(self) -> bool:
        """Returns true if a pack was written since the command began."""
        try:
            return os.stat(self.output).st_mtime_ns != self.before
        except OSError:
            return False


class Discovery:
    """Waits for the model, and notes what else the program creates until then."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._patches = Patches()
        self._trained: set[int] = set()
        self._optimizers = 0
        self._namespaces: list[argparse.Namespace] = []
        self._process = os.getpid()
        self._collection: Collection | None = None
        #: Modules already considered as the model of a program that trains none.
        self._weighed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._weight = 0
        #: The part of that model whose calls are observed, if not the model itself.
        self._part: Any = None

    def start(self) -> None:
        """Watches seeds, arguments, optimizers and the calls of modules."""
        import torch
        from torch.optim.optimizer import Optimizer

        watch.start(just_imported="torch")
        self._patches.attribute(argparse.ArgumentParser, "parse_known_args", self._parsed)
        self._patches.attribute(Optimizer, "add_param_group", self._grouped)
        self._patches.attribute(torch.nn.Module, "__call__", self._called)
        order = self._order
        self._request = Request(
            Path(order.output),
            order.steps,
            order.stop,
            files=list(order.files),
            run=order.run,
            namespaces=self._namespaces,
            is_bystander=self._is_bystander,
        )
        self._collection = Collection(self._request, on_finish=self._patches.undo)

    def move(self, output: str) -> None:
        """Writes the pack to `output`, if it is not written yet."""
        self._order = replace(self._order, output=output)
        self._request.output = Path(output)

    def _parsed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def parse_known_args(*arguments: Any, **keywords: Any) -> Any:
            result = original(*arguments, **keywords)
            if isinstance(result, tuple) and isinstance(result[0], argparse.Namespace):
                if not any(known is result[0] for known in self._namespaces):
                    self._namespaces.append(result[0])
            return result

        return parse_known_args

    def _grouped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def add_param_group(optimizer: Any, group: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(optimizer, group, *arguments, **keywords)
            try:
                self._optimizers += 1
                self._trained.update(id(parameter) for parameter in optimizer.param_groups[-1]["params"])
            except Exception:
                pass
            return result

        return add_param_group

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # `Module.__call__` is replaced until the model is found; torch's own is restored before the model runs.
        is_compiling = compiling()

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if not is_compiling():
                    if self._is_model(module):
                        self._found(module)
                    elif self._may_infer(module):
                        self._infer(module, sys._getframe(1))
            except Exception as error:
                self._patches.undo()
                say(f"config-check: nothing is packed: {type(error).__name__}: {error}")
            return original(module, *args, **kwargs)

        return call

    def _is_model(self, module: Any) -> bool:
        torch = sys.modules["torch"]
        if self._collection is None or os.getpid() != self._process:
            return False
        taken = self._collection.model is not None and not self._collection.provisional
        if taken or self._collection.finished or not torch.is_grad_enabled():
            return False
        if self._optimizers:
            return any(id(parameter) in self._trained for parameter in module.parameters())
        return any(parameter.requires_grad for parameter in module.parameters())

    def _found(self, module: Any) -> None:
        collection, self._collection = self._collection, None
        self._patches.undo()
        if collection is not None:
            # The call has not begun, so the hook sees it.
            collection.attach(_whole(module, sys._getframe(1)), called=module)
            collection.settings(hyperparameters.script_frame())

    def _may_infer(self, module: Any) -> bool:
        """Returns true if this is a call of a module that nothing trains so far, in the program itself or one of its
        ranks."""
        if self._optimizers or self._collection is None or self._collection.finished or os.getpid() != self._process:
            return False
        if self._part is not None and module is self._collection.model:
            # A part was called first, as `generate` calls the encoder.
            return True
        return module not in self._weighed and self._order.program in (os.getpid(), os.getppid())

    def _infer(self, module: Any, frame: FrameType | None) -> None:
        """Takes a model that is larger than the one before, until a trained one comes."""
        whole = _whole(module, frame)
        self._weighed.update(whole.modules())
        weight = sum(parameter.numel() for parameter in whole.parameters())
        if self._collection is not None and (weight > self._weight or whole is self._collection.model):
            self._weight = weight
            self._part = None if module is whole else module
            self._collection.attach(whole, called=module, provisional=True)
            self._collection.settings(hyperparameters.script_frame())

    def _is_bystander(self) -> bool:
        """Returns true if this process, which called no model, has no place in the pack: launchers and helpers import
        torch as well."""
        program = self._order.program
        if program == os.getpid():
            # Everything that it started has ended.
            return self._order.is_packed()
        if program == os.getppid() and not self._order.is_packed():
            say("config-check: nothing is packed for a process that called no model in training")
        return True

    def begin(self) -> None:
        """Starts watching whatever trains the model."""
        if self._collection is not None:
            self._collection.watch()


def _whole(module: Any, frame: FrameType | None) -> Any:
    """The outermost module that contains `module` and whose method is running. Some frameworks call a method of the
    model and never the model, so the first call is one of its parts."""
    whole = module
    while frame is not None:
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        caller = frame.f_locals.get(arguments[0]) if arguments else None
        if holds(caller, whole):
            whole = caller
        frame = frame.f_back
    return whole


_discovery: Discovery | None = None


def install() -> None:
    """Carry out the command's order in this process; do nothing without one. Call once torch is imported."""
    _carry_out(Order.from_environment)


def beside(dump: str, run: str, program: int | None) -> None:
    """Packs this process's run into `DUMP.config.zip`, once torch is imported. `run` is the same for all ranks, or empty;
    `program` is the process of the program. A pack that is under way goes there too."""
    output = f"{dump}.config.zip"
    if _discovery is not None:
        _discovery.move(output)
    _carry_out(lambda: Order(output, run=run or None, program=program))


def process(variable: str) -> int | None:
    """Returns the process id that an environment variable holds; None without one."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _carry_out(order: Callable[[], Order | None]) -> None:
    global _discovery
    if _discovery is not None:
        return
    try:
        wanted = order()
        if wanted is None or _is_worker():
            return
        _discovery = Discovery(wanted)
        _discovery.start()
        _discovery.begin()
    except (OSError, ValueError, TypeError) as error:
        say(f"config-check: nothing is packed: {error}")


def _is_worker() -> bool:
    """Returns true if this process only loads data for another."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
