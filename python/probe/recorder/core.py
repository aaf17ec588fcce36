"""Creates the core of a recording: its manifest, its options, and the functions that it calls."""

from __future__ import annotations

import json

import torch

from probe import surroundings
from probe._core import Recorder
from probe.messages import say_once
from probe.private import VARIABLE, autograd, checkpoints, safe, tensors
from probe.recorder import frames, naming
from probe.recorder.collectives import wait
from probe.recorder.device import Device
from probe.recorder.slices import Slices
from probe.request import filters, manifest, options
from probe.selection import Selection
from probe.settings import Settings

#: Set by tests and benchmarks: tensors in host memory are then measured like those on a device.
_AS_ON_DEVICE = False


def create(settings: Settings, rank: int, world: int, selection: Selection, slices: Slices | None, device: Device) -> Recorder:
    """Creates the folder of the dump, and what records into it, for one of `world` ranks."""
    if (reason := safe()) and reason != f"{VARIABLE} is set":
        say_once(f"{reason}: tensors and frames are read by their attributes, which takes longer; {VARIABLE}=0 reads them the usual way")
    framework = {"name": "torch", "version": torch.__version__}
    notes = [f"recorded the safe way: {reason}"] if (reason := safe()) else []
    described = manifest(settings, framework, Device.present(), world, surroundings.facts(), notes)
    chosen = options(settings, torch.get_num_threads()) | {"as_on_device": _AS_ON_DEVICE}
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
        "narrow": slices,
        **filters(selection, settings),
    }
    return Recorder(settings.output, rank, json.dumps(described), json.dumps(chosen), hooks)
