"""The way in from a program: `probe.capture` and `probe.Capture`."""

from __future__ import annotations

import os
import types
from contextlib import AbstractContextManager
from typing import Any

from probe.config_check import collect
from probe.folder import refuse_used
from probe.recorder._session import Models, Session
from probe.settings import Settings


class Capture(AbstractContextManager["Capture"]):
    """Records the ops of selected iterations.

    `start`, `step` and `stop` mark where iterations begin and end; as a context manager, an iteration ends with the
    optimizer step unless `step` is called.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] = "probe_dump",
        model: Models = None,
        **settings: Any,
    ) -> None:
        """`settings` are the keys of `probe.toml`. Raises `SettingsError` for an unknown key or value, and for a
        folder that holds a dump or anything else."""
        self._model = model
        checked = Settings.from_arguments(output=os.fspath(output), **settings)
        refuse_used(checked)
        if checked.pack:
            collect.beside(checked.output, "", os.getpid())
        self._session = Session(checked)

    def start(self, model: Models = None) -> None:
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


def capture(output: str | os.PathLike[str] = "probe_dump", model: Models = None, **settings: Any) -> Capture:
    """Records what runs in the `with` block: `with probe.capture("gpu_dump", model=model, steps=[10, 20]): …`.

    `settings` are the keys of `probe.toml`: `steps`, `level`, `task` and so on. Raises `SettingsError` for an unknown
    one, and for a folder that already holds a dump, unless `overwrite` is set.
    """
    return Capture(output, model, **settings)
