"""Data files: name, size and, for small ones, content hash."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

#: Larger files are identified by their size alone.
MAX_BYTES = 64 << 20


def collect(paths: list[str | Path]) -> list[dict[str, Any]]:
    """Returns the files as in `dataset.json`. Missing files are left out; repeated names get a number."""
    found: dict[str, dict[str, Any]] = {}
    for path in map(Path, paths):
        try:
            entry: dict[str, Any] = {"bytes": path.stat().st_size}
            if entry["bytes"] <= MAX_BYTES:
                entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            continue
        name, number = path.name, 2
        while name in found:
            name, number = f"{path.name} ({number})", number + 1
        found[name] = {"name": name, **entry}
    return list(found.values())
