"""Creates the core of a recording of MindSpore."""

from __future__ import annotations

import json

import mindspore
from probe import surroundings
from probe._core import Recorder
from probe.mindspore import arrays, frames, graph
from probe.request import filters, manifest, options
from probe.selection import Selection
from probe.settings import Settings

#: Threads of the host that MindSpore's kernels keep busy: the core helps itself to none.
_THREADS = 1 << 16


def create(settings: Settings, rank: int, world: int, selection: Selection) -> Recorder:
    """Creates the folder of the dump, and what records into it, for one of `world` ranks."""
    framework = {"name": "mindspore", "version": mindspore.__version__}
    described = manifest(settings, framework, graph.device(), world, surroundings.packages("mindspore"), [])
    hooks = {
        "arrays": arrays,
        # MindSpore's arrays are plain, on the host, and recorded as the program calls functions.
        "parts": _never,
        "device": None,
        "autograd_node": _none,
        "sequence": _never,
        "region": _never,
        "describe_op": _never,
        "wait": _none,
        "describe_frames": frames.describe,
        **filters(selection, settings),
    }
    return Recorder(settings.output, rank, json.dumps(described), json.dumps(options(settings, _THREADS)), hooks)


def _none(*_: object) -> None:
    return None


def _never(*_: object) -> None:
    raise NotImplementedError("not asked of a recording of MindSpore")
