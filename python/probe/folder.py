"""The folder of a dump, before anything is recorded into it."""

from __future__ import annotations

from probe.ranks import is_child
from probe.settings import Settings, SettingsError


def refuse_used(settings: Settings) -> None:
    """Raises SettingsError if the folder holds a dump of another run, or anything else: the run would be wasted.

    Removes nothing, whatever the settings say: an old dump is removed when recording begins.
    """
    # A child that serves the recording process has loaded the program again.
    if settings.overwrite or is_child():
        return
    from probe._core import check_folder

    try:
        check_folder(settings.output)
    except OSError as error:
        raise SettingsError(str(error)) from None
