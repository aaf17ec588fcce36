"""Recording of operators below Python: the agent records, and this package tells it where steps begin and end and
which torch op runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from typing import Any

from probe import current, runtime
from probe.iterations import Iterations
from probe.recorder._session import Session
from probe.settings import Settings, Slice
from probe.steps import Steps


class RuntimeSession:
    """One recording of this process, like `Session`, with the agent beside it. Methods raise only what `Session` lets
    through."""

    def __init__(self, settings: Settings, only: bool) -> None:
        self._settings = settings
        self._process = os.getpid()
        self._names: str | None = None
        if only:
            # Torch ops are named but not measured, only in the forward pass and not in the dispatcher: with listeners
            # on gradients or the dispatcher, torch adds some gradients up with different operators. The dump of a
            # names-only recorder is of no use.
            runtime.follow_queue()
            self._names = tempfile.mkdtemp(prefix="probe-names-")
            settings = replace(settings, output=os.path.join(self._names, "dump"), level="mix", slots=(), phases=("forward",), quiet=True, include=(), exclude=(), perturb=None, keep="all")
        self._session = Session(settings)
        current.begin(self)
        self._in_step = False
        self._running = False

    @property
    def step_number(self) -> int:
        return self._session.step_number

    @property
    def iterations(self) -> Iterations | None:
        return self._session.iterations

    @iterations.setter
    def iterations(self, iterations: Iterations | None) -> None:
        self._session.iterations = iterations

    def start(self, model: Any = None) -> None:
        self._session.start(model)
        self._running = True
        self._begin()

    def stop(self) -> None:
        self._end()
        self._running = False
        self._session.stop()

    def step(self) -> None:
        self._end()
        self._session.step()
        self._begin()

    def recount(self, number: int) -> None:
        self._end()
        self._session.recount(number)
        self._begin()

    def set_step(self, number: int) -> None:
        self._end()
        self._session.set_step(number)
        self._begin()

    def count(self, step_on: str, counter: type[Iterations] = Iterations) -> None:
        self._session.count(step_on, counter, self)

    def narrow(self, rows: Slice) -> None:
        self._session.narrow(rows)

    def select(self, steps: Steps) -> None:
        # The command refuses --control with --runtime: the agent's steps are fixed when the program starts.
        self._session.select(steps)

    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        self._session.save(name, value, gradient)

    def close(self, error: BaseException | None = None) -> None:
        if os.getpid() != self._process:
            return
        self._end()
        self._session.close(error)
        runtime.close()
        current.end(self)
        if self._names is not None:
            shutil.rmtree(self._names, ignore_errors=True)

    def _begin(self) -> None:
        if self._running and self._session.step_number in self._settings.steps:
            runtime.begin_step(self._session.step_number)
            self._in_step = True

    def _end(self) -> None:
        if self._in_step:
            self._in_step = False
            runtime.end_step()
