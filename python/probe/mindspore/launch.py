"""Records an unmodified program of MindSpore below `probe capture`."""

from __future__ import annotations

from probe import launch
from probe.messages import warn
from probe.mindspore.iterations import CellIterations
from probe.mindspore.session import Session, check
from probe.settings import SettingsError


def install() -> None:
    """Carries out the command's order in this process; does nothing without one."""
    settings = launch.ordered_settings()
    if settings is None:
        return
    try:
        check(settings)
    except SettingsError as error:
        warn(f"MindSpore is not recorded: {error}")
        return
    launch.begin(launch.Launch(settings, Session, CellIterations))
