"""Decides when to record: steps, start and stop, and the end of the process."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from probe import current, summary
from probe._core import Recorder
from probe.iterations import Iterations
from probe.messages import say, say_once, warn
from probe.names import check_apis, check_modules
from probe.private.fastpaths import FastPaths
from probe.private.guards import without_functions
from probe.ranks import current_rank, world_size
from probe.recorder.compiled import CompiledRegions
from probe.recorder.core import create
from probe.recorder.device import Device
from probe.recorder.ending import Ending
from probe.recorder.gradients import Gradients
from probe.recorder.inject import Injection
from probe.recorder.integrity import Integrity
from probe.recorder.interception import Interception
from probe.recorder.keeping import Keeping
from probe.recorder.modes import ApiMode
from probe.recorder.modules import Modules
from probe.recorder.perturb import Perturbation
from probe.recorder.saves import save, save_gradients
from probe.recorder.slices import Slices
from probe.recorder.updates import Updates
from probe.selection import Selection
from probe.settings import Settings, Slice
from probe.steps import Steps

#: What a script gives as its model.
Models = torch.nn.Module | Iterable[torch.nn.Module] | None

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
    """One recording of this process. No method raises."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: Iteration that is being recorded, or would be.
        self.step_number = 0
        self._process = os.getpid()
        self._over = False
        self._running = False
        self._in_step = False
        self._core: Recorder | None = None
        self._modules: Modules | None = None
        self._gradients: Gradients | None = None
        self._models: list[Models] = []
        #: Decides where iterations end, unless only the program does.
        self.iterations: Iterations | None = None
        #: True if the counting was started here.
        self._counts = False
        #: Steps that have begun, in order.
        self._begun: list[int] = []
        #: Module calls before the current step.
        self._outermost = 0
        self._selection = Selection(settings)
        self._slices = Slices(settings.slices) if settings.slices or settings.request is not None else None
        self._updates: Updates | None = None
        self._interception: Interception | None = None
        self._rank, self._world = current_rank(settings.rank), world_size()
        self._selected = self._rank in settings.ranks
        self._compiled: CompiledRegions | None = None
        self._device = Device(settings.task in ("sketch", "tensor"), settings.host_bytes, settings.fused)
        self._ending = Ending()
        self._keeping = Keeping(settings) if settings.keep != "all" else None
        self._perturbation = Perturbation(settings.perturb) if settings.perturb is not None else None
        self._integrity = Integrity(settings.recheck, settings.poison) if settings.recheck or settings.poison else None
        self._injection = Injection(settings, self._rank) if settings.inject is not None or settings.inject_at else None
        _sessions.add(self)
        atexit.register(self.close)
        current.begin(self)
        self._warnings = check_apis(settings)
        for warning in self._warnings:
            warn(warning)

    @property
    def recorded(self) -> bool:
        """True if anything was recorded so far."""
        return self._core is not None

    @_quietly
    def start(self, model: Models = None) -> None:
        """Begins or resumes recording, if the current step is selected. `model` gives modules the paths the user
        knows."""
        if model is not None and not any(known is model for known in self._models):
            self._models.append(model)
            if self._modules is not None:
                self._learn(model)
        if not self._running:
            self._running = True
            self._resume()

    @_quietly
    def stop(self) -> None:
        """Pauses recording; the step stays open."""
        if self._running:
            self._pause()
            self._running = False

    @_quietly
    def step(self) -> None:
        """Ends the iteration; what follows belongs to the next one."""
        watched = self._in_step and self._modules is not None and self._modules.attached
        if watched and self.iterations is not None and self._modules is not None:
            self.iterations.recorded(self.step_number, self._modules.outermost - self._outermost)
        self._pause()
        self._finish_step()
        self.step_number += 1
        if self._keeping is not None and self._keeping.full:
            self.close()
        elif self._running:
            self._resume()

    @_quietly
    def recount(self, number: int) -> None:
        """Takes back iteration `number` and later ones, which were miscounted: the next iteration gets this
        number."""
        self._pause()
        self._finish_step()
        if self._core is not None:
            self._core.forget_steps(number)
        if self._keeping is not None:
            self._keeping.forget(number)
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

    @_quietly
    def narrow(self, rows: Slice) -> None:
        """Records these rows of tensors from here on, beside the parts that the settings name."""
        if self._slices is not None:
            self._slices.request = rows

    @_quietly
    def select(self, steps: Steps) -> None:
        """Records these iterations from the next one on."""
        self.settings = dataclasses.replace(self.settings, steps=steps)

    @_quietly
    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        """Records a value under a user's name, and the gradients of the tensors in it."""
        if not (self._running and self._in_step) or self._core is None:
            return
        core = self._core
        with without_functions():
            save(core, name, value)
            if gradient:
                save_gradients(core, name, value, lambda: self._in_step)

    def close(self, error: BaseException | None = None) -> None:
        """Ends the recording. Idempotent; also called at process exit. `error` is the exception with which the
        program leaves it."""
        if self._over or os.getpid() != self._process:
            return
        try:
            self._pause()
            if self._interception is not None:
                self._interception.pop()
            self._finish_step(self._ending.cut(self._core, error) if self._core is not None else None)
            if self._core is not None:
                count, first = self._core.faults()
                notes = [f"{count} calls could not be recorded in full; the first: {first}"] if count else []
                notes += self._integrity.lines() if self._integrity is not None else []
                for note in notes:
                    say_once(note)
                # Already reported when they were found.
                kept = self._keeping.lines() if self._keeping is not None else []
                self._core.close(notes + self._device.missing() + kept)
                self._report()
            if not self._over:
                self._tell()
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
        self._end()
        current.end(self)
        atexit.unregister(self.close)

    @_quietly
    def count(self, step_on: str, counter: type[Iterations] = Iterations, whole: current.Recording | None = None) -> None:
        """Ends iterations as `step_on` says, until the program itself marks them. `whole` is a recording that this is a
        part of."""
        first = self.step_number
        ends = whole if whole is not None else self

        def recount(guessed: int) -> None:
            if iterations.split and self._selected and first in self.settings.steps:
                say_once(
                    f"iteration {first} was recorded in part: its end was counted before step() was called for the "
                    "first time; with step_on='program' nothing but step() ends one"
                )
            ends.recount(first + 1)

        iterations = self.iterations = counter(step_on, ends.step, recount)
        iterations.listen()
        self._counts = True
        current.count_by(iterations.step)

    def forsake(self) -> None:
        """Runs in a forked process: removes everything from torch without touching the recorded data."""
        ended, self._over = self._over, True
        if ended:
            return
        try:
            if self._interception is not None:
                self._interception.switch_off()
            if self._modules is not None:
                self._modules.detach()
            if self._gradients is not None:
                self._gradients.forget_parameters()
            if self._compiled is not None:
                self._compiled.detach()
            self._end()
            current.end(self)
            atexit.unregister(self.close)
        except Exception as error:
            say_once(f"recording could not be ended in a forked process: {error}")
        # Its destructor would write to the files of the parent.
        if self._core is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._core))

    # The following may raise; callers handle that.

    def _resume(self) -> None:
        if not self._selected or self.step_number not in self.settings.steps:
            return
        if self._core is None:
            self._rank, self._world = current_rank(self.settings.rank), world_size()
            self._core = create(self.settings, self._rank, self._world, self._selection, self._slices, self._device)
            self._build(self._core)
        if not self._in_step:
            self._core.begin_step(self.step_number)
            self._device.begin_step()
            self._ending.step_begins()
            self._selection.begin_step()
            if self._integrity is not None:
                self._integrity.begin_step()
            if self._injection is not None:
                self._injection.begin_step(self.step_number)
            self._in_step = True
            self._begun.append(self.step_number)
            self._outermost = self._modules.outermost if self._modules is not None else 0
        self._report()
        if self._over or self._modules is None or self._interception is None or self.settings.level == "save":
            return
        self._modules.attach()
        self._modules.watch_parameters()
        if self._compiled is not None:
            self._compiled.attach()
        self._interception.push()

    def _pause(self) -> None:
        if self._modules is None or self._interception is None or not self._modules.attached:
            return
        self._interception.switch_off()
        if self._compiled is not None:
            self._compiled.detach()
        self._modules.detach()
        if self._gradients is not None:
            self._gradients.forget_parameters()

    def _finish_step(self, cut: tuple[str | None, str] | None = None) -> None:
        """`cut` says how the program ended inside the step, if it did."""
        if self._in_step and self._core is not None:
            self._in_step = False
            if self._updates is not None:
                self._updates.forget()
            if self._modules is not None:
                self._modules.finish_step()
            if self._gradients is not None:
                self._gradients.flush(cut is not None)
            if cut is None:
                self._core.finish_step()
            else:
                self._core.cut_step(*cut)
            if self._keeping is not None and not self._keeping.keeps(self._core, self.step_number, cut):
                self._core.forget_steps(self.step_number)
            self._report()

    def _build(self, core: Recorder) -> None:
        level, phases = self.settings.level, self.settings.phases
        gradients = self._gradients = Gradients(core)
        backward = gradients if "backward" in phases else None
        record = level in ("module", "mix")
        updated = "gradients" in phases and level != "save"
        interception = self._interception = Interception(core, level, backward, self._integrity, self._injection)
        modules = self._modules = Modules(
            core,
            record,
            backward if record else None,
            gradients if updated else None,
            interception.push,
            interception.pop,
            self._perturbation,
            self._injection,
            FastPaths(ApiMode) if level in ("api", "mix") else None,
        )
        self._compiled = CompiledRegions(core, modules, backward, lambda: interception.silence(modules))
        for model in self._models:
            if model is not None:
                self._learn(model)
        self._updates = Updates(core, modules, updated, lambda: self._in_step)

    def _learn(self, model: torch.nn.Module | Iterable[torch.nn.Module]) -> None:
        """Adds a model's paths, and warns about listed names that it does not have."""
        if self._modules is not None:
            self._modules.add(model)
            self._selection.learn(self._modules.paths)
        for warning in check_modules(self.settings, [model] if isinstance(model, torch.nn.Module) else list(model)):
            self._warnings.append(warning)
            warn(warning)

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
        if self._updates is not None:
            self._updates.remove()
            self._updates = None

    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Returns how much was recorded: see `Capture.tally`."""
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
            device=Device.present()["kind"],
            iterations=self.iterations,
            outermost=self._modules.outermost if self._modules is not None else 0,
            unused=self._selection.unused(self._warnings) if self._begun else [],
            keeping=self._keeping,
            perturbed=f"{self._perturbation.describe()}; it shows noise, for probe compare --noise and probe calibrate" if self._perturbation is not None else None,
            injected=self._injection.describe() if self._injection is not None else None,
            integrity=self._integrity.summary() if self._integrity is not None else None,
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


#: Recordings of this process.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forked() -> None:
    """Runs in a forked process, which records nothing: removes everything from torch and leaves the files to the
    parent."""
    for session in list(_sessions):
        session.forsake()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
