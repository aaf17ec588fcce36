"""Decides when to record: steps, start and stop, and the end of the process."""

from __future__ import annotations

import functools
from typing import Any

from probe import current
from probe.iterations import Iterations
from probe.mindspore import arrays, graph
from probe.mindspore.cells import Cells
from probe.mindspore.core import create
from probe.mindspore.functions import Functions
from probe.mindspore.gradients import Gradients
from probe.mindspore.iterations import CellIterations
from probe.ranks import current_rank, world_size
from probe.session import StepSession, quietly
from probe.settings import Settings, SettingsError, Slice

#: Settings that have no meaning here yet, and their values in which they ask for nothing.
_NOT_HERE = {"perturb": None, "inject": None, "inject_at": (), "recheck": False, "poison": False, "pack": False, "keep": "all", "slices": (), "request": None}


def check(settings: Settings) -> None:
    """Raises SettingsError for what cannot be recorded of MindSpore."""
    if settings.level == "op":
        raise SettingsError("level: 'op' is not recorded of MindSpore, whose operators are not dispatched in Python; choose 'mix', 'api' or 'module'")
    for key, nothing in _NOT_HERE.items():
        if getattr(settings, key) != nothing:
            raise SettingsError(f"{key}: is not supported for MindSpore; leave it out")


class Session(StepSession):
    """One recording of a program of MindSpore."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError for what cannot be recorded of MindSpore."""
        check(settings)
        super().__init__(settings)
        self._cells: Cells | None = None
        self._functions: Functions | None = None
        self._gradients: Gradients | None = None
        self._open()

    def narrow(self, rows: Slice) -> None:
        """Is never called: `check` refuses requests."""

    @quietly
    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        """Records a value under a user's name, and the gradients of the tensors in it."""
        if not (self._running and self._in_step) or self._core is None:
            return
        self._save(name, value)
        for path, tensor in arrays.tensors(value) if gradient else ():
            if graph.node_of(tensor) is not None:
                tensor.register_hook(functools.partial(self._save_gradient, f"{name}{'.' if path else ''}{path}_grad"))

    def _save_gradient(self, name: str, gradient: Any) -> Any:
        if self._in_step:
            try:
                self._save(name, gradient)
            except Exception as error:
                self._give_up(f"{type(error).__name__}: {error}")
        return gradient

    def _save(self, name: str, value: Any) -> None:
        assert self._core is not None, "a step is open"
        call = self._core.open(f"{name}.{self._core.number(name)}.debug")
        if call is not None:
            self._core.add(call, "output", [("value", arrays.of(value))])
            self._core.finish(call)

    @quietly
    def count(self, step_on: str, counter: type[Iterations] = CellIterations, whole: current.Recording | None = None) -> None:
        """Ends iterations as `step_on` says, until the program itself marks them."""
        super().count(step_on, counter, whole)

    def close(self, error: BaseException | None = None) -> None:
        """Ends the recording. Idempotent; also called at process exit. `error` is the exception with which the program
        leaves it."""
        super().close(error)
        self._release()

    # The following may raise; callers handle that.

    def _resume(self) -> None:
        if not self._selected or self.step_number not in self.settings.steps:
            return
        if self._core is None:
            self._build()
        assert self._core is not None, "it was built"
        if not self._in_step:
            self._begin_step(self._core)
        self._report()
        if not self._over and self._cells is not None and self._functions is not None and self.settings.level != "save":
            self._cells.attach()
            self._functions.attach()

    def _pause(self) -> None:
        if self._functions is not None:
            self._functions.detach()
        if self._cells is not None:
            self._cells.detach()
        if self._gradients is not None:
            self._gradients.forget_parameters()

    def _leave(self, error: BaseException | None) -> tuple[str | None, str] | None:
        if self._core is None or error is None or isinstance(error, GeneratorExit):
            return None
        last = self._core.last_raised()
        inside = last[0] if last is not None and last[1] == id(error) else None
        return inside, f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def _finish_step(self, cut: tuple[str | None, str] | None = None) -> None:
        if self._in_step and self._core is not None and self._gradients is not None:
            self._in_step = False
            self._gradients.flush(cut is not None)
            self._end_step(self._core, cut)
            self._report()

    def _build(self) -> None:
        self._rank, self._world = current_rank(self.settings.rank), world_size()
        core = self._core = create(self.settings, self._rank, self._world, self._selection)
        level, phases = self.settings.level, self.settings.phases
        gradients = self._gradients = Gradients(core)
        backward = gradients if "backward" in phases else None
        self._functions = Functions(core, level in ("api", "mix"), backward)
        record = level in ("module", "mix")
        updated = "gradients" in phases and level != "save"
        self._cells = Cells(core, record, self._functions, backward if record else None, gradients if updated else None)
        for model in self._models:
            self._learn(model)

    def _learn(self, model: Any) -> None:
        if self._cells is not None:
            self._cells.add(model)
            self._selection.learn(self._cells.paths)

    def _release(self) -> None:
        """Lets go of the program's cells and modules: cells that outlive MindSpore's own modules fail as they are destroyed."""
        self._models.clear()
        self._functions = self._cells = self._gradients = None

    def _facts(self) -> dict[str, Any]:
        return {
            "device": graph.device()["kind"],
            "outermost": self._cells.outermost if self._cells is not None else 0,
            "unused": self._selection.unused() if self._begun else [],
        }

    def _give_up(self, reason: str) -> None:
        super()._give_up(reason)
        self._release()
