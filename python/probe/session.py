"""Course of one recording, whatever framework the program uses: its steps, start and stop, and its end."""

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
from probe.ranks import current_rank, world_size
from probe.selection import Selection
from probe.settings import Settings
from probe.steps import Steps


def quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Wraps a method to end the recording instead of raising, so that training goes on whatever happens."""

    @functools.wraps(method)
    def guarded(self: StepSession, *args: Any, **kwargs: Any) -> None:
        if self._over or os.getpid() != self._process:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    return guarded


class StepSession:
    """One recording of this process. Methods without a leading underscore do not raise; callers of the others handle
    that."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: Iteration that is being recorded, or would be.
        self.step_number = 0
        #: Decides where iterations end, unless only the program does.
        self.iterations: Iterations | None = None
        self._process = os.getpid()
        self._over = self._running = self._in_step = False
        #: True if the counting was started here.
        self._counts = False
        self._core: Recorder | None = None
        self._models: list[Any] = []
        #: Steps that have begun, in order.
        self._begun: list[int] = []
        self._selection = Selection(settings)
        self._rank, self._world = current_rank(settings.rank), world_size()
        self._selected = self._rank in settings.ranks

    def _open(self) -> None:
        """Becomes the session of this process, once all of it is there."""
        atexit.register(self.close)
        current.begin(self)

    @quietly
    def start(self, model: Any = None) -> None:
        """Begins or resumes recording, if the current step is selected. `model` gives modules the paths the user
        knows."""
        if model is not None and not any(known is model for known in self._models):
            self._models.append(model)
            self._learn(model)
        if not self._running:
            self._running = True
            self._resume()

    @quietly
    def stop(self) -> None:
        """Pauses recording; the step stays open."""
        if self._running:
            self._pause()
            self._running = False

    @quietly
    def step(self) -> None:
        """Ends the iteration; what follows belongs to the next one."""
        self._turn(self.step_number + 1)

    @quietly
    def recount(self, number: int) -> None:
        """Takes back iteration `number` and later ones, which were miscounted: the next iteration gets this
        number."""
        self._pause()
        self._finish_step()
        self._forget(number)
        self._turn(number)

    @quietly
    def set_step(self, number: int) -> None:
        """Sets the number of the current iteration, for a run that resumes from a checkpoint."""
        self._turn(number)

    @quietly
    def select(self, steps: Steps) -> None:
        """Records these iterations from the next one on."""
        self.settings = dataclasses.replace(self.settings, steps=steps)

    @quietly
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

    def close(self, error: BaseException | None = None) -> None:
        """Ends the recording. Idempotent; also called at process exit. `error` is the exception with which the
        program leaves it."""
        if self._over or os.getpid() != self._process:
            return
        try:
            self._pause()
            self._finish_step(self._leave(error))
            if self._core is not None:
                count, first = self._core.faults()
                notes = [f"{count} calls could not be recorded in full; the first: {first}"] if count else []
                self._core.close(self._notes(notes))
                self._report()
            if not self._over:
                self._tell()
        except Exception as fault:
            self._give_up(f"{type(fault).__name__}: {fault}")
        self._end()
        current.end(self)
        atexit.unregister(self.close)

    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Returns how much was recorded: see `probe.recorder.Capture.tally`."""
        return self._core.tally() if self._core is not None else (0, (0, 0, None), 0.0)

    def _turn(self, number: int) -> None:
        """Ends the iteration and gives the next one this number."""
        self._pause()
        self._finish_step()
        self.step_number = number
        if self._running:
            self._resume()

    def _begin_step(self, core: Recorder) -> None:
        core.begin_step(self.step_number)
        self._selection.begin_step()
        self._in_step = True
        self._begun.append(self.step_number)

    def _end_step(self, core: Recorder, cut: tuple[str | None, str] | None) -> None:
        if cut is None:
            core.finish_step()
        else:
            core.cut_step(*cut)

    def _forget(self, number: int) -> None:
        """Takes back iteration `number` and later ones."""
        if self._core is not None:
            self._core.forget_steps(number)
        self._begun = [step for step in self._begun if step < number]

    def _notes(self, notes: list[str]) -> list[str]:
        """Says how the recording is incomplete, and returns that for its manifest."""
        for note in notes:
            say_once(note)
        return notes

    def _resume(self) -> None:
        """Watches the program, if the current step is recorded."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Watches nothing."""
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> tuple[str | None, str] | None:
        """Leaves the program for good. Returns how it ended inside the step, if it did: the op, and the error."""
        raise NotImplementedError

    def _finish_step(self, cut: tuple[str | None, str] | None = None) -> None:
        """Ends a step that has begun. `cut` says how the program ended inside it, if it did."""
        raise NotImplementedError

    def _learn(self, model: Any) -> None:
        """Learns the paths of a model, once there are modules to name."""
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """Returns what a framework adds to the summary: fields of [`summary.Outcome`]."""
        raise NotImplementedError

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
            iterations=self.iterations,
            **self._facts(),
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
