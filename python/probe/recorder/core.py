"""Creates the core of a recording: its manifest, its options, and the functions that it calls."""

from __future__ import annotations

import datetime
import json
import os

import torch

from probe import surroundings
from probe._core import Recorder
from probe.launch import Order
from probe.messages import say_once
from probe.patterns import path_of
from probe.private import VARIABLE, autograd, checkpoints, safe, tensors
from probe.ranks import processes_here
from probe.recorder import frames, naming
from probe.recorder.collectives import wait
from probe.recorder.device import Device
from probe.recorder.slices import Slices
from probe.selection import Selection
from probe.settings import Settings, SettingsError

#: Set by tests and benchmarks: tensors in host memory are then measured like those on a device.
_AS_ON_DEVICE = False

#: More bytes than any step writes, meaning no budget.
_NO_BUDGET = 2**63 - 1


def create(settings: Settings, rank: int, world: int, selection: Selection, slices: Slices | None, device: Device) -> Recorder:
    """Creates the folder of the dump, and what records into it, for one of `world` ranks."""
    if (reason := safe()) and reason != f"{VARIABLE} is set":
        say_once(f"{reason}: tensors and frames are read by their attributes, which takes longer; {VARIABLE}=0 reads them the usual way")
    manifest = {
        "framework": {"name": "torch", "version": torch.__version__},
        "device": Device.present(),
        "world_size": world,
        "environment": surroundings.facts(),
        "run": _run_identity(),
        "level": "saved" if settings.level == "save" else settings.level,
        "task": settings.task,
        "config": settings.describe(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "notes": [*_remarks(settings), *([f"recorded the safe way: {reason}"] if (reason := safe()) else [])],
    }
    options = {
        "task": settings.task,
        "threads": torch.get_num_threads(),
        "processes": processes_here(),
        "stacks": settings.stacks,
        "overwrite": settings.overwrite,
        "max_bytes": _NO_BUDGET if settings.max_bytes is None else settings.max_bytes,
        "forward": "forward" in settings.phases,
        "backward": "backward" in settings.phases,
        "gradients": "gradients" in settings.phases,
        "inputs": "input" in settings.slots,
        "outputs": "output" in settings.slots,
        "as_on_device": _AS_ON_DEVICE,
    }
    hooks = {
        "parts": tensors.parts,
        "device": device,
        "autograd_node": autograd.current_node,
        "sequence": autograd.next_sequence,
        "region": checkpoints.region,
        "describe_op": naming.describe_op,
        "wait": wait,
        "describe_frames": frames.describe,
        "checkpoint_code": checkpoints.checkpoint_code(),
        "border_code": checkpoints.border_code(),
        "wants": None if selection.everything else _Wants(selection),
        "narrow": slices,
        "stores": _Stores(selection) if settings.tensors else None,
    }
    return Recorder(settings.output, rank, json.dumps(manifest), json.dumps(options), hooks)


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
