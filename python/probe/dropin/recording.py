"""The single recording that the older tool's classes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probe import current, launch
from probe.dropin.marks import Marks
from probe.dropin.requests import rows_of
from probe.dropin.switch import Switch
from probe.dropin.tokens import Tokens
from probe.folder import refuse_used
from probe.messages import say_once, warn
from probe.settings import Settings, SettingsError


class SharedRecording:
    """Creates a session when it is first needed, from settings that are already checked."""

    #: Decides where iterations end.
    marks: type[Marks] = Marks
    #: Creates a recording.
    session = staticmethod(launch.session)

    def __init__(self, settings: Settings, switch: Switch | None = None) -> None:
        """With a `switch`, nothing is recorded while it is off. Raises SettingsError if the folder holds a dump of another run, or anything else."""
        #: Settings of the file, by which two of these are told apart.
        self.asked = settings
        #: Settings of the recording; below `probe capture`, what the command names wins over the file.
        self.settings, self._session = launch.hand_over(settings, self.marks.framework)
        if self._session is None:
            refuse_used(self.settings)
        self._switch = switch
        #: Models that the script gave to `start`, and has not stopped.
        self._started: list[Any] = []
        self._tokens: Tokens | None = None
        self._first_step = 0
        #: True if the script marked the end of an iteration before it started.
        self._marked = False
        self._warned: set[int] = set()

    def start(self, model: Any, rank: int | None = None, tokens: Sequence[int] | None = None, scheduled: Any = None) -> None:
        """Begin or resume recording, of the calls `tokens` of the model if they are given; nothing if the request of the
        settings is not among those `scheduled`."""
        self._check_names(model)
        if self._tokens is not None:
            self._tokens.remove()
            self._tokens = None
        session = self._made(rank)
        step_on = self.settings.step_on
        if session.iterations is None and not (self._marked and step_on is None):
            session.count(step_on or "optimizer", self.marks)
        if isinstance(session.iterations, Marks):
            session.iterations.paused = False
            session.iterations.go_on()
        request = self.settings.request
        if request is not None:
            if scheduled is None:
                raise SettingsError(f"start: request_id {request!r} needs the batch: start(scheduled_tokens={{request: number of tokens, ...}})")
            rows = rows_of(request, scheduled)
            if rows is None:
                session.stop()
                return
            session.narrow(rows)
        if tokens is not None:
            self._tokens = Tokens(model, tokens, lambda: self._resume(session, model), session.stop)
        else:
            self._resume(session, model)

    def stop(self) -> None:
        """Pause."""
        self._started.clear()
        if self._tokens is not None:
            self._tokens.remove()
            self._tokens = None
        if self._session is not None:
            self._session.stop()
            if isinstance(self._session.iterations, Marks):
                self._session.iterations.paused = True

    def step(self) -> None:
        """Note the script's mark: it ends an iteration, also if nothing has started yet, unless it comes once behind
        the whole loop."""
        if self._session is None:
            self._first_step += 1
            self._marked = True
        elif self._session.iterations is not None:
            self._session.iterations.step()
        else:
            self._session.step()
        if self._switch is not None and self._session is not None:
            if not self._switch.look():
                self._session.stop()
            else:
                for model in self._started:
                    self._session.start(model)

    def save(self, name: str, value: Any, gradient: bool) -> None:
        """Record a user's value."""
        self._made(None).save(name, value, gradient=gradient)

    def set_step(self, number: int) -> None:
        """Set the number of the current iteration."""
        self._first_step = number
        if self._session is not None:
            self._session.set_step(number)

    def move(self, output: str) -> None:
        """Finish the dump, and record what follows into another folder. Raises SettingsError if that is used."""
        if self.settings.output != self.asked.output:
            say_once(f"everything is recorded into {self.settings.output}, as the command says; the program asked for {output}")
            return
        settings = self.settings.replaced(output=output)
        if settings.output == self.settings.output:
            return
        refuse_used(settings)
        if self._session is not None:
            iterations = self._session.iterations
            self._first_step, self._marked = self._session.step_number, iterations is None or iterations.told
            self.close()
        self.settings = self.asked = settings

    def close(self) -> None:
        """Finish the dump."""
        if self._session is not None:
            self._session.close()
            current.end(self._session)
            self._session = None

    def _resume(self, session: current.Recording, model: Any) -> None:
        self._started.append(model)
        if self._switch is None or self._switch.look():
            session.start(model)

    def _made(self, rank: int | None) -> current.Recording:
        if self._session is None:
            settings = self.settings if rank is None else self.settings.replaced(rank=rank)
            self._session = self.session(settings)
            if self._first_step:
                self._session.set_step(self._first_step)
            current.begin(self._session)
            launch.at_end_of_child(self.close)
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
