"""`ApiProfiler`, the oldest form: configured by the file named by `MSPROBE_PATH`."""

from __future__ import annotations

import os
from typing import Any

from probe.dropin.config_file import read
from probe.dropin.recording import SharedRecording
from probe.settings import Settings, SettingsError

#: The environment variable that names the file.
VARIABLE = "MSPROBE_PATH"


class ApiProfiler:
    """Records between `start` and `stop`; `save` ends the iteration. All profilers of a process share one dump."""

    _recording: SharedRecording | None = None

    def __init__(self, config_path: str | os.PathLike[str] | None = None) -> None:
        """Read the file named by `MSPROBE_PATH`, or the given one. Raises SettingsError if there is none or it is
        unusable."""
        path = config_path or os.environ.get(VARIABLE)
        if not path:
            raise SettingsError(f"{VARIABLE} is not set: set it to the msprobe.json that says what to record")
        settings = read(path)
        shared = ApiProfiler._recording
        if shared is None or shared.asked != settings:
            if shared is not None:
                shared.close()
            ApiProfiler._recording = SharedRecording(settings)

    @property
    def settings(self) -> Settings:
        """Settings of the recording."""
        return self._shared().settings

    def start(self, model: Any = None) -> None:
        """Begin or resume recording. Without a model, models are found when they are called."""
        self._shared().start(model)

    def stop(self) -> None:
        """Pause."""
        self._shared().stop()

    def save(self) -> None:
        """Write the recorded data and go on to the next iteration."""
        self._shared().step()

    @classmethod
    def forget(cls) -> None:
        """Finish the dump and make room for another file in this process."""
        if cls._recording is not None:
            cls._recording.close()
        ApiProfiler._recording = None

    @staticmethod
    def _shared() -> SharedRecording:
        assert ApiProfiler._recording is not None, "made by the constructor"
        return ApiProfiler._recording
