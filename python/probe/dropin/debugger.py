"""`PrecisionDebugger`, with the calls that scripts for the older tool make."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from probe.dropin import config_json
from probe.dropin.config_file import read, switch
from probe.dropin.recording import SharedRecording
from probe.messages import say_once, warn
from probe.seeds import seed_all
from probe.settings import Settings, SettingsError


class PrecisionDebugger:
    """The older tool's debugger. To switch, a script changes its import to `from probe import PrecisionDebugger`.

    There is one per process; each method can also be called on the class, and does nothing before the first
    construction.
    """

    #: The one of this process, which engines look up by this name.
    _instance: ClassVar[PrecisionDebugger | None] = None
    _recording: ClassVar[SharedRecording | None] = None
    #: Creates the recording.
    _shared_recording: ClassVar[type[SharedRecording]] = SharedRecording
    _module_dump: ClassVar[bool] = False

    def __init__(
        self,
        config_path: str | os.PathLike[str] | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Iterable[int | str] | None = None,
    ) -> None:
        """Read `config.json` (or its oldest form); a given argument wins over the file.

        Without a file: task statistics, level L1, folder `./dump_path`. Raises SettingsError, a one-line ValueError,
        for every unusable key or value.
        """
        arguments = {"task": task, "dump_path": dump_path, "level": level, "step": _listed(step)}
        if config_path is None:
            settings = config_json.settings({}, "PrecisionDebugger", arguments)
        else:
            settings = read(config_path, **arguments)
        before = PrecisionDebugger._recording
        if before is None:
            PrecisionDebugger._recording = self._shared_recording(settings, None if config_path is None else switch(config_path))
            PrecisionDebugger._instance = self
        elif before.asked != settings:
            warn("a second PrecisionDebugger with different settings is ignored: there is one per process, the first")

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: Sequence[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: object = None,
    ) -> None:
        """Begin or resume recording. `model` is a Module or a list of them; levels L0 and mix need it.

        `rank_id` sets the rank of this process where torch.distributed does not. `token_range` is the first and the last
        call of the model to record, counted from 0 since this call, both included. `scheduled_tokens` has the number of
        tokens of each request in the batch, of which the file's `request_id` is recorded. Raises SettingsError for unsupported
        arguments.
        """
        recording = cls._ready("start")
        if recording is None:
            return
        if model is None and recording.settings.level in ("module", "mix"):
            # Models called later are still found, which is more than the older tool could do.
            say_once(f"start: no model given at level {recording.settings.level}; models are named in the order of their first calls")
        recording.start(model, rank_id, token_range, scheduled_tokens)

    @classmethod
    def stop(cls) -> None:
        """Pause. Calling it twice is harmless."""
        recording = cls._ready("stop")
        if recording is not None:
            recording.stop()

    @classmethod
    def step(cls) -> None:
        """End the iteration; the next one gets the next number."""
        recording = cls._ready("step")
        if recording is not None:
            recording.step()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a tensor, number, text, list, tuple or dict, at every level, and with `save_backward` its
        gradient."""
        recording = cls._ready("save")
        if recording is not None:
            recording.save(name, variable, save_backward)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Set the number of the current iteration, for example that of the checkpoint a training resumes from."""
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise SettingsError(f"set_init_step: {step!r} is not a step number")
        recording = cls._ready("set_init_step")
        if recording is not None:
            recording.set_step(step)

    @classmethod
    def module_dump(cls, module: Any, dump_name: str) -> None:
        """Record this module and everything inside it, until `module_dump_end`. The name in the record is the
        module's own path."""
        recording = cls._ready("module_dump")
        if recording is None:
            return
        if cls._module_dump:
            raise SettingsError(f"module_dump: {dump_name!r} begins before module_dump_end() has ended the previous one")
        PrecisionDebugger._module_dump = True
        recording.start(module)

    @classmethod
    def module_dump_end(cls) -> None:
        """End what `module_dump` began."""
        if not cls._module_dump:
            say_once("module_dump_end: module_dump() was not called before")
            return
        PrecisionDebugger._module_dump = False
        cls.stop()

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Accepted but not needed: ops are intercepted in torch, so a user function is recorded through the ops it
        calls."""
        prefix = api_prefix or getattr(module, "__name__", type(module).__name__)
        say_once(f"register_custom_api: {prefix}.{api} need not be registered: the torch functions and ops that it calls are "
                 "recorded anyway; 'save' records its own values")

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Accepted but not needed: `register_custom_api` replaces nothing."""

    @staticmethod
    def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
        """Calls `probe.seed_all`, with the older tool's argument names."""
        seed_all(seed, deterministic=mode, rm_dropout=rm_dropout, is_enhanced=is_enhanced)

    @classmethod
    def forget(cls) -> None:
        """Finish the dump and make room for another debugger in this process."""
        if cls._recording is not None:
            cls._recording.close()
        PrecisionDebugger._recording = None
        PrecisionDebugger._instance = None
        PrecisionDebugger._module_dump = False

    @classmethod
    def _ready(cls, call: str) -> SharedRecording | None:
        if cls._recording is None:
            say_once(f"{call}: no PrecisionDebugger has been made in this process, so the call does nothing")
        return cls._recording

    @property
    def settings(self) -> Settings:
        """Settings of the recording."""
        return self._shared().settings

    @property
    def config(self) -> _Config:
        """The part of the older tool's own configuration object that engines read and set."""
        return _Config(self._shared())

    @property
    def service(self) -> _Service:
        """The way by which verl reaches the configuration."""
        return _Service(self.config)

    @staticmethod
    def _shared() -> SharedRecording:
        assert PrecisionDebugger._recording is not None, "made by the constructor"
        return PrecisionDebugger._recording


class _Config:
    """The folder of the dump, which engines read to put logs beside it, and set before each stage of a training."""

    def __init__(self, recording: SharedRecording) -> None:
        self._recording = recording

    @property
    def dump_path(self) -> str:
        """Folder of the dump; what is recorded after it is set goes into the new one."""
        return self._recording.settings.output

    @dump_path.setter
    def dump_path(self, path: str) -> None:
        self._recording.move(path)


@dataclass(frozen=True)
class _Service:
    """Holds the configuration, as in the older tool."""

    config: _Config


def _listed(step: Iterable[int | str] | int | str | None) -> list[int | str] | None:
    if step is None:
        return None
    return [step] if isinstance(step, (int, str)) else list(step)
