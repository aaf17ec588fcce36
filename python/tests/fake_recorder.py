"""Stands in for the recorder: writes down what is asked of it, one JSON object a line, into the file `FAKE_LOG`.

Importing it is enough: from then on `probe.recorder._session.Session` is this one.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any


class Session:
    """The interface that `probe.launch` and `probe.dropin` expect of a recorder."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.step_number = 0
        self.closed = False
        self.iterations = None
        self._note("made", settings=settings.describe())

    def start(self, model: Any = None) -> None:
        self._note("start", model=None if model is None else type(model).__name__)

    def stop(self) -> None:
        self._note("stop")

    def step(self) -> None:
        self.step_number += 1
        self._note("step")

    def count(self, step_on: str, counter: Any) -> None:
        """Iterations end where the script says so: what counts them is tested with the recorder."""

    def recount(self, number: int) -> None:
        self.step_number = number
        self._note("recount")

    def set_step(self, number: int) -> None:
        self.step_number = number
        self._note("set_step")

    def save(self, name: str, value: Any, gradient: bool = True) -> None:
        self._note("save", name=name, value=repr(value), gradient=gradient)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._note("close")

    def _note(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), "step": self.step_number, **more})
        with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
            log.write(line + "\n")


def install() -> None:
    """Take the place of the recorder in this process."""
    package = types.ModuleType("probe.recorder")
    package.__path__ = []  # type: ignore[attr-defined]
    module = types.ModuleType("probe.recorder._session")
    module.Session = Session  # type: ignore[attr-defined]
    sys.modules["probe.recorder"] = package
    sys.modules["probe.recorder._session"] = module


install()
