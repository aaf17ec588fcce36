"""The way in from a program: `probe.mindspore.capture`."""

from __future__ import annotations

import os
import types
from contextlib import AbstractContextManager
from typing import Any

from probe.folder import refuse_used
from probe.mindspore.session import Session
from probe.settings import Settings


class Capture(AbstractContextManager["Capture"]):
    """Records what runs in a `with` block. An iteration ends with the optimizer step unless `step` is called."""

    def __init__(self, output: str | os.PathLike[str] = "probe_dump", model: Any = None, **settings: Any) -> None:
        """`settings` are the keys of `probe.toml`. Raises SettingsError for an unknown key or value, for one that is not
        supported for MindSpore, and for a folder that holds a dump or anything else."""
        self._model = model
        checked = Settings.from_arguments(output=os.fspath(output), **settings)
        refuse_used(checked)
        self._session = Session(checked)

    def step(self) -> None:
        """Ends the iteration. From the first call on, nothing else ends one."""
        if self._session.iterations is not None:
            self._session.iterations.step()

    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        """Records a value under a name, and its gradient."""
        self._session.save(name, value, gradient)

    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Returns the ops recorded so far; the tensors among their values, how many could not be measured, and the first of
        these with the reason; and the seconds spent measuring and writing."""
        return self._session.tally()

    def __enter__(self) -> Capture:
        self._session.count(self._session.settings.step_on or "optimizer")
        self._session.start(self._model)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self._session.close(error)


def capture(output: str | os.PathLike[str] = "probe_dump", model: Any = None, **settings: Any) -> Capture:
    """Records what runs in the `with` block: `with probe.mindspore.capture("npu_dump", net, steps=[10, 20]): …`.

    `settings` are the keys of `probe.toml`. Raises SettingsError: see `Capture`.
    """
    return Capture(output, model, **settings)
