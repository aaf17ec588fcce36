"""Replays the calls of both dumps for `probe compare --confirm`, `probe narrow` and `probe gate --narrow`, and prints what that showed."""

from __future__ import annotations

import json
import sys
import warnings

import torch

from probe.replay import whole
from probe.replay.recorded import Recording


def main(order: str) -> None:
    """Carries out the order of the command, a JSON object. Leaves with code 2 where nothing can be replayed."""
    asked = json.loads(order)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    told = (lambda text: None) if asked["quiet"] else whole.on_terminal
    try:
        sides = Recording(asked["baseline"]), Recording(asked["candidate"])
    except ValueError as error:
        _failed(str(error))
    text = whole.confirm(*sides, _numbers(asked["steps"]), _numbers(asked["ranks"]), told)
    if "[[op]]" not in text:
        _failed("no call of these dumps can be replayed; record with task tensor")
    sys.stdout.write(text)


def _failed(reason: str) -> None:
    print(f"error: {reason}", file=sys.stderr)
    sys.exit(2)


def _numbers(ranges: list[tuple[int, int]]) -> list[range]:
    return [range(first, last + 1) for first, last in ranges]
