"""Part `source`: the running script, and the state of its repository."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from probe.config_check import repository, secrets


def collect() -> dict[str, Any]:
    """Returns the entry script as in `source.json`. File names only, no folders."""
    found: dict[str, Any] = {"argv": secrets.arguments(sys.argv[1:])}
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(file, str):
        return found
    path = Path(file)
    entry: dict[str, Any] = {"name": path.name}
    try:
        entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        pass
    found["entry"] = entry
    git = repository.state(path.resolve().parent)
    if git is not None:
        git["changed"] = [secrets.text(name) for name in git.get("changed", [])]
        found["git"] = git
    return found
