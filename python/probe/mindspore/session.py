"""Decides when to record: steps, start and stop, and the end of the process."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

from probe import current, summary
from probe._core import Recorder
from probe.iterations import Iterations
from probe.messages import say, say_once
from probe.mindspore import arrays, graph
from probe.mindspore.cells import Cells
from probe.mindspore.core import create
from probe.mindspore.functions import Functions
from probe.mindspore.gradients import Gradients
from probe.mindspore.iterations import CellIterations
from probe.ranks import current_rank, world_size
from probe.selection import Selection
from probe.settings import Settings, SettingsError, Slice
from probe.steps import Steps

#: Settings that have no meaning here yet, and their values in which they ask for nothing.
_NOT_HERE = {"perturb": None, "inject": None, "inject_at": (), "recheck": False, "poison": False, "pack": False, "keep": "all", "slices": (), "request": None}


def check(settings: Settings) -> None:
    """Raises SettingsError for what cannot be recorded of MindSpore."""
    if settings.level == "op":
        raise SettingsError("level: 'op' is not recorded of MindSpore, whose operators are not dispatched in Python; choose 'mix', 'api' or 'module'")
    for key, nothing in _NOT_HERE.items():
        if getattr(settings, key) != nothing:
            raise SettingsError(f"{key}: is not supported for MindSpore; leave it out")


def _quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Wraps a method to end the recording instead of raising, so that training goes on whatever happens."""

    @functools.wraps(method)
    def guarded(self: Session, *args: Any, **kwargs: Any) -> None:
        if self._over or os.getpid() != self._process:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    return guarded


class Session:
    """One recording of this process. No method but the constructor raises."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError for what cannot be recorded of MindSpore."""
        check(settings)
        self.settings = settings
        #: Iteration that is being recorded, or would be.
        self.step_number = 0
        #: Decides where iterations end, unless only the program does.
        self.iterations: Iterations | None = None
        self._process = os.getpid()
        self._over = self._running = self._in_step = self._counts = False
        self._core: Recorder | None = None
        self._cells: Cells | None = None
        self._functions: Functions | None = None
        self._gradients: Gradients | None = None
        self._models: list[Any] = []
        self._begun: list[int] = []
        self._selection = Selection(settings)
        self._rank, self._world = current_rank(settings.rank), world_size()
        self._selected = self._rank in settings.ranks
        atexit.register(self.close)
        current.begin(self)

    @_quietly
    def start(self, model: Any = None) -> None:
        """Begins or resumes recording, if the current step is selected. `model` gives cells the paths the user knows."""
        if model is not None and not any(known is model for known in self._models):
            self._models.append(model)
            if self._cells is not None:
                self._learn(model)
        if not self._running:
            self._running = True
            self._resume()

    @_quietly
    def stop(self) -> None:
        """Pauses recording; the step stays open."""
        self._pause()
        self._running = False

    @_quietly
    def step(self) -> None:
        """Ends the iteration; what follows belongs to the next one."""
        self._pause()
        self._finish_step()
        self.step_number += 1
        if self._running:
            self._resume()

    @_quietly
    def recount(self, number: int) -> None:
        """Takes back iteration `number` and later ones, which were miscounted: the next iteration gets this number."""
        self._pause()
        self._finish_step()
        if self._core is not None:
            self._core.forget_steps(number)
        self._begun = [step for step in self._begun if step < number]
        self.step_number = number
        if self._running:
            self._resume()

    @_quietly
    def set_step(self, number: int) -> None:
        """Sets the number of the current iteration, for a run that resumes from a checkpoint."""
        self._pause()
        self._finish_step()
        self.step_number = number
        if self._running:
            self._resume()

    def narrow(self, rows: Slice) -> None:
        """Is never called: `check` refuses requests."""

    @_quietly
    def select(self, steps: Steps) -> None:
        """Records these iterations from the next one on."""
        self.settings = dataclasses.replace(self.settings, steps=steps)

    @_quietly
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

    @_quietly
    def count(self, step_on: str, counter: type[Iterations] = CellIterations) -> None:
        """Ends iterations as `step_on` says, until the program itself marks them."""
        first = self.step_number

        def recount(guessed: int) -> None:
            if iterations.split and self._selected and first in self.settings.steps:
                say_once(
                    f"iteration {first} was recorded in part: its end was counted before step() was called for the first time; with "
                    "step_on='program' nothing but step() ends one"
                )
            self.recount(first + 1)

        iterations = self.iterations = counter(step_on, self.step, recount)
        iterations.listen()
        self._counts = True
        current.count_by(iterations.step)

    def close(self, error: BaseException | None = None) -> None:
        """Ends the recording. Idempotent; also called at process exit. `error` is the exception with which the program
        leaves it."""
        if self._over or os.getpid() != self._process:
            return
        try:
            self._pause()
            self._finish_step(error)
            if self._core is not None:
                count, first = self._core.faults()
                notes = [f"{count} calls could not be recorded in full; the first: {first}"] if count else []
                for note in notes:
                    say_once(note)
                self._core.close(notes)
                self._report()
            if not self._over:
                self._tell()
        except Exception as fault:
            self._give_up(f"{type(fault).__name__}: {fault}")
        self._end()
        self._release()
        current.end(self)
        atexit.unregister(self.close)

    # The following may raise; callers handle that.

    def _resume(self) -> None:
        if not self._selected or self.step_number not in self.settings.steps:
            return
        if self._core is None:
            self._build()
        assert self._core is not None, "it was built"
        if not self._in_step:
            self._core.begin_step(self.step_number)
            self._selection.begin_step()
            self._in_step = True
            self._begun.append(self.step_number)
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

    def _finish_step(self, error: BaseException | None = None) -> None:
        if self._in_step and self._core is not None and self._gradients is not None:
            self._in_step = False
            cut = error is not None and not isinstance(error, GeneratorExit)
            self._gradients.flush(cut)
            if cut:
                last = self._core.last_raised()
                inside = last[0] if last is not None and last[1] == id(error) else None
                self._core.cut_step(inside, f"{type(error).__name__}: {error}".splitlines()[0][:200])
            else:
                self._core.finish_step()
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

    def _report(self) -> None:
        """Says once why the recording has ended early, if it has."""
        failed = self._core.failed() if self._core is not None else None
        if failed is not None and not self._over:
            self._give_up(failed)

    def _end(self) -> None:
        self._over = True
        if self._counts and self.iterations is not None:
            self._counts = False
            self.iterations.remove()
            current.count_by(None)

    def _release(self) -> None:
        """Lets go of the program's cells and modules: cells that outlive MindSpore's own modules fail as they are destroyed."""
        self._models.clear()
        self._functions = self._cells = self._gradients = None

    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Returns how much was recorded: see `probe.recorder.Capture.tally`."""
        return self._core.tally() if self._core is not None else (0, (0, 0, None), 0.0)

    def _tell(self) -> None:
        """Reports what was recorded, or why nothing was."""
        speaker = self.settings.ranks.next_from(0)
        if self._rank != (speaker if speaker is not None and speaker < self._world else 0):
            return
        ops, (tensors, unmeasured, first), seconds = self.tally()
        outcome = summary.Outcome(
            settings=self.settings,
            rank=self._rank,
            world=self._world,
            selected=self._selected,
            begun=self._begun,
            reached=self.step_number,
            ops=ops,
            tensors=tensors,
            unmeasured=unmeasured,
            first_unmeasured=first,
            seconds=seconds,
            device=graph.device()["kind"],
            iterations=self.iterations,
            outermost=self._cells.outermost if self._cells is not None else 0,
            unused=self._selection.unused() if self._begun else [],
        )
        for line in outcome.lines():
            say(line)

    def _give_up(self, reason: str) -> None:
        self._end()
        say_once(f"recording stopped: {reason}; training goes on")
        try:
            self._pause()
            if self._core is not None:
                self._core.abandon(reason)
        except Exception as error:
            say_once(f"recording could not be ended cleanly: {error}")
        self._release()
