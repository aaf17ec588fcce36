"""The request to `probe._core.Recorder` that does not depend on the framework: the manifest, the options, and the filters of
the settings."""

from __future__ import annotations

import datetime
import os
from typing import Any

from probe.launch import Order
from probe.patterns import path_of
from probe.ranks import processes_here
from probe.selection import Selection
from probe.settings import Settings, SettingsError

#: More bytes than any step writes, meaning no budget.
_NO_BUDGET = 2**63 - 1


def manifest(
    settings: Settings, framework: dict[str, str], device: dict[str, Any], world: int, environment: dict[str, str], notes: list[str]
) -> dict[str, Any]:
    """Returns the manifest of a recording that begins now. `framework` has `name` and `version`, `device` what
    `probe.recorder.device.Device.present` returns, and `world` is the number of ranks."""
    return {
        "framework": framework,
        "device": device,
        "world_size": world,
        "environment": environment,
        "run": _run_identity(),
        "level": "saved" if settings.level == "save" else settings.level,
        "task": settings.task,
        "config": settings.describe(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "notes": [*_remarks(settings), *notes],
    }


def options(settings: Settings, threads: int) -> dict[str, Any]:
    """Returns the options of a recording of a program whose own ops use this many threads."""
    return {
        "task": settings.task,
        "threads": threads,
        "processes": processes_here(),
        "stacks": settings.stacks,
        "overwrite": settings.overwrite,
        "max_bytes": _NO_BUDGET if settings.max_bytes is None else settings.max_bytes,
        "forward": "forward" in settings.phases,
        "backward": "backward" in settings.phases,
        "gradients": "gradients" in settings.phases,
        "inputs": "input" in settings.slots,
        "outputs": "output" in settings.slots,
    }


def filters(selection: Selection, settings: Settings) -> dict[str, Any]:
    """Returns the hooks that decide by name: which ops are recorded, and of which the data is stored."""
    return {
        "wants": None if selection.everything else _Wants(selection),
        "stores": _Stores(selection) if settings.tensors else None,
    }


class _Wants:
    """Decides whether the user listed an op. Opens and closes the range of `scope` on the way."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __call__(self, name: str, scope: str | None) -> bool:
        self._selection.opened(name)
        wanted = self._selection.wants(name, _path(scope), _phase(name))
        self._selection.closed(name)
        return wanted


class _Stores:
    """Decides whether an op's data is stored although the task does not ask for it."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __call__(self, name: str, scope: str | None) -> bool:
        return self._selection.wants_tensor(name, _path(scope), _phase(name))


def _run_identity() -> str:
    """Returns the command's identifier of this run, by which its ranks recognise one another; empty without a
    command."""
    try:
        order = Order.from_environment()
    except SettingsError:
        return ""
    return "" if order is None else order.run


def _remarks(settings: Settings) -> list[str]:
    """Remarks that a reader of the dump must see before anything else."""
    if settings.inject is not None:
        return [
            f"{os.path.basename(settings.output)} was recorded with --inject: {', '.join(settings.replace)} of {', '.join(map(str, settings.inject_at)) or 'all calls'} "
            f"came from {os.path.basename(settings.inject)}, so that each shows its own error alone"
        ]
    if settings.perturb is None:
        return []
    return [
        f"{os.path.basename(settings.output)} was recorded with --perturb {settings.perturb}: its weights and inputs were moved by "
        "one rounding, so that it shows noise; it is not a run to judge"
    ]


def _path(scope: str | None) -> str:
    return (path_of(scope) or "") if scope else ""


def _phase(name: str) -> str:
    return "gradients" if ".parameters_grad" in name else "backward" if ".backward" in name else "forward"
