"""The dump whose values take the place of the run's own (`inject`), as far as it can be judged before the program starts: what it lacks
for certain is an error then, and not a run in which nothing is replaced."""

from __future__ import annotations

from collections.abc import Collection

from probe import _core
from probe.nearest import suggestion
from probe.patterns import names_of, path_of
from probe.settings import Settings, SettingsError
from probe.steps import Steps

#: Places of a dump that a message lists.
_LISTED = 4


def usable(settings: Settings) -> str:
    """Returns the path of the dump. Raises SettingsError if none is named, or at a level at which nothing can be replaced."""
    if settings.inject is None:
        raise SettingsError("inject_at: belongs to inject, which names the dump that values come from")
    if settings.level == "save":
        raise SettingsError("inject: at level 'save' nothing can be replaced; use level 'module', 'mix', 'api' or 'op'")
    return settings.inject


def steps_of(settings: Settings, places: Collection[tuple[int, int]], rank: int | None = None) -> Steps:
    """Returns the selected steps that the dump has at `places`, of a rank or of any selected one. Raises SettingsError if it has none of them."""
    ranks = settings.ranks if rank is None else Steps([(rank, rank)])
    found = [step for step, its in places if step in settings.steps and its in ranks]
    if not found:
        of = "" if ranks.all else f" of rank {ranks}"
        asked = f"no step{of}" if settings.steps.all else f"none of steps {settings.steps}{of}"
        has = ", ".join(f"step {step} rank {its}" for step, its in sorted(places)[:_LISTED]) + (", ..." if len(places) > _LISTED else "")
        raise SettingsError(f"inject: {settings.inject} has {asked}, so nothing can be replaced; it has {has or 'no step'}")
    return Steps((step, step) for step in found)


def check(settings: Settings) -> None:
    """Raises SettingsError if no call of the selected steps can get a value of the dump."""
    path = usable(settings)
    try:
        dump = _core.Dump(path)
    except ValueError as error:
        raise SettingsError(f"inject: {error}") from None
    steps = steps_of(settings, dump.parts)
    try:
        part = dump.read(next(index for index, (step, rank) in enumerate(dump.parts) if step in steps and rank in settings.ranks))
    except ValueError as error:
        raise SettingsError(f"inject: {error}") from None
    if (part.level == "op") != (settings.level == "op"):
        raise SettingsError(f"inject: {path} was recorded at level {part.level}, where calls have other names than at level {settings.level}; record both at one level")
    calls = [names_of(name, (path_of(scope) or "") if (scope := part.facts(place)[0]) else "") for place, name in enumerate(part.ops)]
    # `probe narrow` names single calls, of which the dump may lack all: that is an answer there.
    wanted = [pattern for pattern in settings.inject_at if not {"forward", "backward"} & set(pattern.text.split("."))]
    if wanted and len(wanted) == len(settings.inject_at) and not any(pattern.matches(names) for pattern in wanted for names in calls):
        first, known = wanted[0].text, sorted({name for names in calls for name in names})
        raise SettingsError(f"inject_at: no call of {path} matches {first!r}, so nothing can be replaced; {suggestion(first, known)}")
