"""Decides when to record: steps, start and stop, and the end of the process."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from probe import current
from probe._core import Recorder
from probe.messages import say_once, warn
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
from probe.session import StepSession, quietly
from probe.settings import Settings, Slice

#: Models that a script may pass.
Models = torch.nn.Module | Iterable[torch.nn.Module] | None


class Session(StepSession):
    """One recording of a program of torch."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._modules: Modules | None = None
        self._gradients: Gradients | None = None
        #: Module calls before the current step.
        self._outermost = 0
        self._slices = Slices(settings.slices) if settings.slices or settings.request is not None else None
        self._updates: Updates | None = None
        self._interception: Interception | None = None
        self._compiled: CompiledRegions | None = None
        self._device = Device(settings.task in ("sketch", "tensor"), settings.host_bytes, settings.fused)
        self._ending = Ending()
        self._keeping = Keeping(settings) if settings.keep != "all" else None
        self._perturbation = Perturbation(settings.perturb) if settings.perturb is not None else None
        self._integrity = Integrity(settings.recheck, settings.poison) if settings.recheck or settings.poison else None
        self._injection = Injection(settings, self._rank) if settings.inject is not None or settings.inject_at else None
        if self._injection is not None:
            self.settings = dataclasses.replace(settings, steps=self._injection.steps)
        _sessions.add(self)
        self._open()
        self._warnings = check_apis(settings)
        for warning in self._warnings:
            warn(warning)

    @property
    def recorded(self) -> bool:
        """True if anything was recorded so far."""
        return self._core is not None

    @quietly
    def step(self) -> None:
        """Ends the iteration; what follows belongs to the next one."""
        watched = self._in_step and self._modules is not None and self._modules.attached
        if watched and self.iterations is not None and self._modules is not None:
            self.iterations.recorded(self.step_number, self._modules.outermost - self._outermost)
        self._turn(self.step_number + 1)

    @quietly
    def narrow(self, rows: Slice) -> None:
        """Records these rows of tensors from here on, beside the parts that the settings name."""
        if self._slices is not None:
            self._slices.request = rows

    @quietly
    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        """Records a value under a user's name, and the gradients of the tensors in it."""
        if not (self._running and self._in_step) or self._core is None:
            return
        core = self._core
        with without_functions():
            save(core, name, value)
            if gradient:
                save_gradients(core, name, value, lambda: self._in_step)

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

    def _forget(self, number: int) -> None:
        super()._forget(number)
        if self._keeping is not None:
            self._keeping.forget(number)

    def _notes(self, notes: list[str]) -> list[str]:
        said = super()._notes(notes + (self._integrity.lines() if self._integrity is not None else []))
        # Already reported when they were found.
        kept = self._keeping.lines() if self._keeping is not None else []
        return said + self._device.missing() + kept

    def _resume(self) -> None:
        if self._keeping is not None and self._keeping.full:
            self.close()
            return
        if not self._selected or self.step_number not in self.settings.steps:
            return
        if self._core is None:
            self._rank, self._world = current_rank(self.settings.rank), world_size()
            self._core = create(self.settings, self._rank, self._world, self._selection, self._slices, self._device)
            self._build(self._core)
        if not self._in_step:
            self._begin_step(self._core)
            self._device.begin_step()
            self._ending.step_begins()
            if self._integrity is not None:
                self._integrity.begin_step()
            if self._injection is not None:
                self._injection.begin_step(self.step_number)
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

    def _leave(self, error: BaseException | None) -> tuple[str | None, str] | None:
        if self._interception is not None:
            self._interception.pop()
        return self._ending.cut(self._core, error) if self._core is not None else None

    def _finish_step(self, cut: tuple[str | None, str] | None = None) -> None:
        if self._in_step and self._core is not None:
            self._in_step = False
            if self._updates is not None:
                self._updates.forget()
            if self._modules is not None:
                self._modules.finish_step()
            if self._gradients is not None:
                self._gradients.flush(cut is not None)
            self._end_step(self._core, cut)
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
            self._learn(model)
        self._updates = Updates(core, modules, updated, lambda: self._in_step)

    def _learn(self, model: torch.nn.Module | Iterable[torch.nn.Module]) -> None:
        """Adds a model's paths, and warns about listed names that it does not have."""
        if self._modules is None:
            return
        self._modules.add(model)
        self._selection.learn(self._modules.paths)
        for warning in check_modules(self.settings, [model] if isinstance(model, torch.nn.Module) else list(model)):
            self._warnings.append(warning)
            warn(warning)

    def _end(self) -> None:
        super()._end()
        if self._updates is not None:
            self._updates.remove()
            self._updates = None

    def _facts(self) -> dict[str, Any]:
        return {
            "device": Device.present()["kind"],
            "outermost": self._modules.outermost if self._modules is not None else 0,
            "unused": self._selection.unused(self._warnings) if self._begun else [],
            "keeping": self._keeping,
            "perturbed": f"{self._perturbation.describe()}; it shows noise, for probe compare --noise and probe calibrate" if self._perturbation is not None else None,
            "injected": self._injection.describe() if self._injection is not None else None,
            "integrity": self._integrity.summary() if self._integrity is not None else None,
        }


#: Recordings of this process.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forked() -> None:
    """Runs in a forked process, which records nothing: removes everything from torch and leaves the files to the
    parent."""
    for session in list(_sessions):
        session.forsake()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
