"""Messages to the user: one line at a time on standard error, never an exception."""

from __future__ import annotations

import os
import sys

_said: set[str] = set()


def say(text: str) -> None:
    """Print one line, prefixed with the rank if the process is one of several."""
    rank = os.environ.get("RANK")
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    sender = f"probe (rank {rank})" if rank is not None and several else "probe"
    line = " ".join(text.split())
    # Standard error may be closed, or a pipe that nobody reads; that must not end a training.
    try:
        print(f"{sender}: {line}", file=sys.stderr, flush=True)
    except (AttributeError, OSError, ValueError):
        pass


def say_once(text: str) -> None:
    """Print a line unless this process has printed it before."""
    if text not in _said:
        _said.add(text)
        say(text)


def warn(text: str) -> None:
    """Print a line that is the same on every rank: once per process, and on the first rank only."""
    if os.environ.get("RANK", "0") == "0":
        say_once(f"warning: {text}")
