"""The single recording that the older tool's classes share."""

from __future__ import annotations

from typing import Any

from probe import current
from probe.folder import refuse_used
from probe.messages import warn
from probe.settings import Settings


class SharedRecording:
    """Creates a session when it is first needed, from settings that are already checked."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError if the folder holds a dump of another run, or anything else."""
        refuse_used(settings)
        self.settings = settings
        self._session: current.Recording | None = None
        self._first_step = 0
        self._warned: set[int] = set()

    def start(self, model: Any, rank: int | None = None) -> None:
        """Begin or resume recording."""
        self._check_names(model)
        self._made(rank).start(model)

    def stop(self) -> None:
        """Pause."""
        if self._session is not None:
            self._session.stop()

    def step(self) -> None:
        """End an iteration. Counts even if nothing has started yet."""
        if self._session is None:
            self._first_step += 1
        else:
            self._session.step()

    def save(self, name: str, value: Any, gradient: bool) -> None:
        """Record a user's value."""
        self._made(None).save(name, value, gradient=gradient)

    def set_step(self, number: int) -> None:
        """Set the number of the current iteration."""
        self._first_step = number
        if self._session is not None:
            self._session.set_step(number)

    def close(self) -> None:
        """Finish the dump."""
        if self._session is not None:
            self._session.close()
            current.end(self._session)
            self._session = None

    def _made(self, rank: int | None) -> current.Recording:
        if self._session is None:
            from probe.recorder._session import Session

            settings = self.settings if rank is None else self.settings.replaced(rank=rank)
            self._session = Session(settings)
            if self._first_step:
                self._session.set_step(self._first_step)
            current.begin(self._session)
        return self._session

    def _check_names(self, model: Any) -> None:
        """Warn about listed names that neither torch nor the model has, once for each model."""
        if id(model) in self._warned:
            return
        self._warned.add(id(model))
        from probe import names

        # Only a model can tell whether a name that is no torch function exists.
        models = [] if model is None else list(model) if isinstance(model, (list, tuple)) else [model]
        warnings = names.check_apis(self.settings) + (names.check_modules(self.settings, models) if models else [])
        for warning in warnings:
            warn(warning)
