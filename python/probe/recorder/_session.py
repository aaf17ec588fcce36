"""Decides when to record: steps, start and stop, and the end of the process."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import datetime
import functools
import json
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from probe import current, optimizers, summary, surroundings
from probe._core import Recorder
from probe.folder import refuse_used
from probe.iterations import Iterations
from probe.launch import Order
from probe.messages import say, say_once, warn
from probe.names import check_apis, check_modules
from probe.patterns import path_of
from probe.ranks import current_rank, processes_here, world_size
from probe.private import VARIABLE, autograd, checkpoints, safe, tensors
from probe.private.guards import without_functions
from probe.private.modes import pushed, remove, set_aside, settle_flags
from probe.recorder import frames, naming
from probe.recorder.collectives import CollectiveMode, wait
from probe.recorder.compiled import CompiledRegions
from probe.recorder.device import Device
from probe.recorder.ending import Ending
from probe.recorder.gradients import Gradients
from probe.recorder.inject import Injection
from probe.recorder.integrity import Integrity, IntegrityMode
from probe.recorder.modes import ApiMode, OpMode
from probe.recorder.modules import Modules
from probe.recorder.perturb import Perturbation
from probe.recorder.slices import Slices
from probe.recorder.updates import Update, open_update
from probe.selection import Selection
from probe.settings import Settings, SettingsError, Slice
from probe.steps import Steps

_Mode = ApiMode | OpMode | CollectiveMode | IntegrityMode
_Models = torch.nn.Module | Iterable[torch.nn.Module] | None

#: Set by tests and benchmarks: tensors in host memory are then measured like those on a device.
_AS_ON_DEVICE = False

#: More bytes than any step writes, meaning no budget.
_NO_BUDGET = 2**63 - 1


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
        self._models: list[_Models] = []
        self._local = threading.local()
        #: Decides where iterations end, unless only the program does.
        self.iterations: Iterations | None = None
        #: True if the counting was started here.
        self._counts = False
        #: Steps that have begun, in order.
        self._begun: list[int] = []
        #: Optimizer step under way: its frame, name and record.
        self._updating: tuple[types.FrameType, str, Update | None] | None = None
        #: Module calls before the current step.
        self._outermost = 0
        self._selection = Selection(settings)
        self._slices = Slices(settings.slices) if settings.slices or settings.request is not None else None
        self._scope_handle: optimizers.Handle | None = None
        self._rank, self._world = current_rank(settings.rank), world_size()
        self._selected = self._rank in settings.ranks
        self._compiled: CompiledRegions | None = None
        self._device = Device(settings.task in ("sketch", "tensor"), settings.host_bytes, settings.fused)
        self._ending = Ending()
        self._perturbation = Perturbation(settings.perturb) if settings.perturb is not None else None
        self._integrity = Integrity(settings.recheck, settings.poison) if settings.recheck or settings.poison else None
        self._injection = Injection(settings, self._rank) if settings.inject is not None or settings.inject_at else None
        #: Number of pauses so far.
        self._period = 0
        #: Active modes on any thread.
        self._modes: weakref.WeakSet[_Mode] = weakref.WeakSet()
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
    def start(self, model: _Models = None) -> None:
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
        if self._running:
            self._resume()

    @_quietly
    def recount(self, number: int) -> None:
        """Takes back iteration `number` and later ones, which were miscounted: the next iteration gets this
        number."""
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
            self._save(core, name, value)
            if gradient:
                self._save_gradients(core, name, value)

    def _save(self, core: Recorder, name: str, value: Any) -> None:
        call = core.open(f"{name}.{core.number(name)}.debug")
        if call is not None:
            core.add(call, "output", [("value", value)])
            core.finish(call)

    def _save_gradients(self, core: Recorder, name: str, value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
        if items is not None:
            for key, item in items:
                self._save_gradients(core, f"{name}.{key}", item)
        elif isinstance(value, torch.Tensor) and value.requires_grad:

            def arrived(gradient: torch.Tensor) -> None:
                if self._in_step:
                    try:
                        with without_functions():
                            self._save(core, f"{name}_grad", gradient)
                    except Exception as error:
                        core.fault(f"gradient of {name}: {error}")

            value.register_hook(arrived)

    def close(self, error: BaseException | None = None) -> None:
        """Ends the recording. Idempotent; also called at process exit. `error` is the exception with which the
        program leaves it."""
        if self._over or os.getpid() != self._process:
            return
        try:
            self._pause()
            self._pop_modes()
            self._finish_step(self._ending.cut(self._core, error) if self._core is not None else None)
            if self._core is not None:
                count, first = self._core.faults()
                notes = [f"{count} calls could not be recorded in full; the first: {first}"] if count else []
                notes += self._integrity.lines() if self._integrity is not None else []
                for note in notes:
                    say_once(note)
                # Already reported when they were found.
                self._core.close(notes + self._device.missing())
                self._report()
            if not self._over:
                self._tell()
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
        self._end()
        current.end(self)
        atexit.unregister(self.close)

    @_quietly
    def count(self, step_on: str, counter: type[Iterations] = Iterations) -> None:
        """Ends iterations as `step_on` says, until the program itself marks them."""
        first = self.step_number

        def recount(guessed: int) -> None:
            if iterations.split and self._selected and first in self.settings.steps:
                say_once(
                    f"iteration {first} was recorded in part: its end was counted before step() was called for the "
                    "first time; with step_on='program' nothing but step() ends one"
                )
            self.recount(first + 1)

        iterations = self.iterations = counter(step_on, self.step, recount)
        iterations.listen()
        self._counts = True
        current.count_by(iterations.step)

    def forsake(self) -> None:
        """Runs in a forked process: removes everything from torch without touching the recorded data."""
        ended, self._over = self._over, True
        if ended:
            return
        try:
            self._switch_off()
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
            self._core = self._create()
            self._build(self._core)
            self._scope_handle = optimizers.listen(
                before=self._enter_optimizer, aside=self._suspend_optimizer, after=self._leave_optimizer
            )
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
        if self._over or self._modules is None or self.settings.level == "save":
            return
        self._modules.attach()
        self._modules.watch_parameters()
        if self._compiled is not None:
            self._compiled.attach()
        self._push_modes()

    def _pause(self) -> None:
        if self._modules is None or not self._modules.attached:
            return
        self._period += 1
        self._switch_off()
        if self._compiled is not None:
            self._compiled.detach()
        self._modules.detach()
        if self._gradients is not None:
            self._gradients.forget_parameters()

    def _finish_step(self, cut: tuple[str | None, str] | None = None) -> None:
        """`cut` says how the program ended inside the step, if it did."""
        if self._in_step and self._core is not None:
            self._in_step = False
            self._updating = None
            if self._modules is not None:
                self._modules.finish_step()
            if self._gradients is not None:
                self._gradients.flush(cut is not None)
            if cut is None:
                self._core.finish_step()
            else:
                self._core.cut_step(*cut)
            self._report()

    def _create(self) -> Recorder:
        settings = self.settings
        self._rank, self._world = current_rank(settings.rank), world_size()
        if (reason := safe()) and reason != f"{VARIABLE} is set":
            say_once(f"{reason}: tensors and frames are read by their attributes, which takes longer; {VARIABLE}=0 reads them the usual way")
        manifest = {
            "framework": {"name": "torch", "version": torch.__version__},
            "device": Device.present(),
            "world_size": self._world,
            "environment": surroundings.facts(),
            "run": _run_identity(),
            "level": "saved" if settings.level == "save" else settings.level,
            "task": settings.task,
            "config": settings.describe(),
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "notes": [*_remarks(settings), *([f"recorded the safe way: {reason}"] if (reason := safe()) else [])],
        }
        options = {
            "task": settings.task,
            "threads": torch.get_num_threads(),
            "processes": processes_here(),
            "stacks": settings.stacks,
            "overwrite": settings.overwrite,
            "max_bytes": _NO_BUDGET if settings.max_bytes is None else settings.max_bytes,
            "forward": "forward" in settings.phases,
            "backward": "backward" in settings.phases,
            "gradients": "gradients" in settings.phases,
            "inputs": "input" in settings.slots,
            "outputs": "output" in settings.slots,
            "as_on_device": _AS_ON_DEVICE,
        }
        hooks = {
            "parts": tensors.parts,
            "device": self._device,
            "autograd_node": autograd.current_node,
            "sequence": autograd.next_sequence,
            "region": checkpoints.region,
            "describe_op": naming.describe_op,
            "wait": wait,
            "describe_frames": frames.describe,
            "checkpoint_code": checkpoints.checkpoint_code(),
            "border_code": checkpoints.border_code(),
            "wants": None if self._selection.everything else _Wants(self._selection),
            "narrow": self._slices,
            "stores": _Stores(self._selection) if settings.tensors else None,
        }
        return Recorder(settings.output, self._rank, json.dumps(manifest), json.dumps(options), hooks)

    def _build(self, core: Recorder) -> None:
        level, phases = self.settings.level, self.settings.phases
        self._gradients = Gradients(core)
        backward = self._gradients if "backward" in phases else None
        record = level in ("module", "mix")
        self._modules = Modules(
            core,
            record,
            backward if record else None,
            self._gradients if "gradients" in phases and level != "save" else None,
            self._push_modes,
            self._pop_modes,
            self._perturbation,
            self._injection,
        )
        self._compiled = CompiledRegions(core, self._modules, backward, self._silence)
        for model in self._models:
            if model is not None:
                self._learn(model)

    def _learn(self, model: torch.nn.Module | Iterable[torch.nn.Module]) -> None:
        """Adds a model's paths, and warns about listed names that it does not have."""
        if self._modules is not None:
            self._modules.add(model)
            self._selection.learn(self._modules.paths)
        for warning in check_modules(self.settings, [model] if isinstance(model, torch.nn.Module) else list(model)):
            self._warnings.append(warning)
            warn(warning)

    def _push_modes(self) -> bool:
        """Intercepts ops on this thread. Returns false if that is already done."""
        present: list[_Mode] = getattr(self._local, "modes", None) or []
        if self._core is None or any(mode.on for mode in present):
            return False
        # Recomputation in a device's backward pass runs on an autograd thread, which has inherited the modes.
        if any(mode.on for mode in self._modes.intersection(pushed())):
            return False
        # Left by a stop on another thread.
        self._pop_modes()
        level = self.settings.level
        # Inside the others: it sees an op where that runs, and they do not see what it does.
        modes: list[_Mode] = [] if self._integrity is None else [IntegrityMode(self._integrity)]
        if level in ("api", "mix"):
            gradients = self._gradients if "backward" in self.settings.phases else None
            modes.append(ApiMode(self._core, gradients, self._integrity, self._injection))
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                modes.append(CollectiveMode(self._core))
        elif level == "op":
            modes.append(OpMode(self._core))
        for mode in modes:
            mode.__enter__()
            self._modes.add(mode)
        self._local.modes = modes
        return True

    def _pop_modes(self) -> None:
        modes, self._local.modes = getattr(self._local, "modes", None), None
        # Torch restores a mode when its handler ends, so one removed inside a handler is removed again later.
        lingering: list[_Mode] = [*getattr(self._local, "lingering", ()), *(modes or ())]
        for mode in reversed(lingering):
            remove(mode)
        self._local.lingering = lingering[-4:]

    def _switch_off(self) -> None:
        """Ends interception on every thread; modes on other threads pass ops through from now on."""
        self._pop_modes()
        for mode in list(self._modes):
            mode.on = False
        self._modes.clear()
        settle_flags()

    def _silence(self) -> Callable[[], None] | None:
        """Stops recording on this thread until the returned function is called. None if it is not being recorded."""
        modes: list[_Mode] = [mode for mode in getattr(self._local, "modes", None) or [] if mode.on]
        watch = self._modules.silence() if self._modules is not None else None
        if watch is None:
            return None
        if self._integrity is not None:
            self._integrity.forget()
        set_back = [back for mode in reversed(modes) if (back := set_aside(mode)) is not None]
        if not set_back and self.settings.level != "module":
            watch()
            return None
        period = self._period

        def resume() -> None:
            watch()
            # A step that ended meanwhile has restarted with its own modes, or has ended the recording.
            if self._period == period:
                for back in reversed(set_back):
                    back()

        return resume

    def _enter_optimizer(self, optimizer: Optimizer, frame: types.FrameType) -> None:
        if self._modules is None or self._core is None or not self._in_step or os.getpid() != self._process:
            return
        try:
            if self._updating is not None and self._updating[0] is frame:
                # Follows another call of its closure.
                self._modules.enter_scope(*self._updating[1:], frame)
                return
            name = f"Optimizer.{type(optimizer).__name__}.step"
            name = f"{name}.{self._core.number(name)}"
            update = None
            # Whatever is not part of a pass belongs to the parameters.
            if self.settings.level != "save" and "gradients" in self.settings.phases:
                update = open_update(self._core, name, optimizer, self._modules.parameters())
            self._updating = frame, name, update
            self._modules.enter_scope(name, update, frame)
        except Exception as error:
            self._core.fault(f"step of {type(optimizer).__name__}: {error}")

    def _suspend_optimizer(self, optimizer: Optimizer) -> None:
        if self._modules is not None and self._core is not None and self._updating is not None and os.getpid() == self._process:
            try:
                self._modules.suspend_scope()
            except Exception as error:
                self._core.fault(f"step of {type(optimizer).__name__}: {error}")

    def _leave_optimizer(self, optimizer: Optimizer) -> None:
        if self._modules is None or self._core is None or os.getpid() != self._process:
            return
        self._updating = None
        try:
            self._modules.leave_scope()
        except Exception as error:
            self._core.fault(f"step of {type(optimizer).__name__}: {error}")

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
        if self._scope_handle is not None:
            self._scope_handle.remove()
            self._scope_handle = None

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


class _Wants:
    """Decides whether the user listed an op. Opens and closes the range of `scope` on the way."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __call__(self, name: str, scope: str | None) -> bool:
        self._selection.opened(name)
        wanted = self._selection.wants(name, _path(scope), _phase(name))
        self._selection.closed(name)
        return wanted


class _Stores:
    """Decides whether an op's data is stored although the task does not ask for it."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __call__(self, name: str, scope: str | None) -> bool:
        return self._selection.wants_tensor(name, _path(scope), _phase(name))


def _run_identity() -> str:
    """Returns the command's identifier of this run, by which its ranks recognise one another; empty without a
    command."""
    try:
        order = Order.from_environment()
    except SettingsError:
        return ""
    return "" if order is None else order.run


def _remarks(settings: Settings) -> list[str]:
    """Remarks that a reader of the dump must see before anything else."""
    if settings.inject is not None:
        return [
            f"{os.path.basename(settings.output)} was recorded with --inject: {', '.join(settings.replace)} of {', '.join(map(str, settings.inject_at)) or 'all calls'} "
            f"came from {os.path.basename(settings.inject)}, so that each shows its own error alone"
        ]
    if settings.perturb is None:
        return []
    return [
        f"{os.path.basename(settings.output)} was recorded with --perturb {settings.perturb}: its weights and inputs were moved by "
        "one rounding, so that it shows noise; it is not a run to judge"
    ]


def _path(scope: str | None) -> str:
    return (path_of(scope) or "") if scope else ""


def _phase(name: str) -> str:
    return "gradients" if ".parameters_grad" in name else "backward" if ".backward" in name else "forward"


class Capture(AbstractContextManager["Capture"]):
    """Records the ops of selected iterations.

    `start`, `step` and `stop` mark where iterations begin and end; as a context manager, an iteration ends with the
    optimizer step unless `step` is called.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] = "probe_dump",
        model: _Models = None,
        **settings: Any,
    ) -> None:
        """`settings` are the keys of `probe.toml`. Raises `SettingsError` for an unknown key or value, and for a
        folder that holds a dump or anything else."""
        self._model = model
        checked = Settings.from_arguments(output=os.fspath(output), **settings)
        refuse_used(checked)
        self._session = Session(checked)

    def start(self, model: _Models = None) -> None:
        """Begins or resumes recording."""
        step_on = self._session.settings.step_on
        if step_on is not None and self._session.iterations is None:
            self._session.count(step_on)
        self._session.start(model if model is not None else self._model)

    def stop(self) -> None:
        """Pauses recording."""
        self._session.stop()

    def step(self) -> None:
        """Ends the iteration. From the first call on, nothing else ends one."""
        iterations = self._session.iterations
        if iterations is not None:
            iterations.step()
        else:
            self._session.step()

    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        """Records a value under a name, and its gradient."""
        self._session.save(name, value, gradient)

    def close(self) -> None:
        """Ends the recording and completes the dump."""
        self._session.close()

    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Returns the ops recorded so far; the tensors among their values, how many could not be measured, and the
        first of these with the reason; and the seconds spent measuring and writing."""
        return self._session.tally()

    def __enter__(self) -> Capture:
        self._session.count(self._session.settings.step_on or "optimizer")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._session.close(error)


def capture(output: str | os.PathLike[str] = "probe_dump", model: _Models = None, **settings: Any) -> Capture:
    """Records what runs in the `with` block: `with probe.capture("gpu_dump", model=model, steps=[10, 20]): …`.

    `settings` are the keys of `probe.toml`: `steps`, `level`, `task` and so on. Raises `SettingsError` for an unknown
    one, and for a folder that already holds a dump, unless `overwrite` is set.
    """
    return Capture(output, model, **settings)
