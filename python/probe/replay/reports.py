"""Replays beside the reports of a comparison: `replays.json`, from which the page shows them at their ops."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

#: Folder of the reports of `probe compare` where it is not told another.
USUAL = "probe-report"
#: Name of the file; `crates/report/src/replays.rs` reads it.
REPLAYS = "replays.json"
#: Version of the file.
_VERSION = 1
#: Bytes of a report or of replays that are read.
_MOST = 256 << 20


class NotKept(Exception):
    """A replay has no place in a folder; the text says why and what to do."""


def folder_for(asked: str | None, baseline: str | None, candidate: str) -> Path | None:
    """Returns the folder of reports that a replay belongs to: the one asked for, or the usual one if it compares these dumps. Raises NotKept."""
    folder = Path(asked or USUAL)
    if baseline is None:
        if asked:
            raise NotKept("--report: a comparison has two sides; give --against")
        return None
    try:
        report = _read(folder / "report.json")
        compared = [report[side]["path"] for side in ("baseline", "candidate")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if asked:
            raise NotKept(f"{folder / 'report.json'}: {_reason(error)}; give the folder that probe compare wrote") from None
        return None
    if [_place(path) for path in compared] == [_place(baseline), _place(candidate)]:
        return folder
    if asked:
        raise NotKept(f"{folder}: compares {compared[0]} with {compared[1]}; give the folder of a comparison of these dumps")
    return None


def keep(folder: Path, document: dict[str, Any]) -> Path:
    """Adds a replay to a folder of reports, in place of an earlier one of the same call; returns the file. Raises NotKept, OSError."""
    path = folder / REPLAYS
    try:
        before = _read(path)
        if before["schema_version"] != _VERSION:
            raise NotKept(f"{path}: was written by another version of probe; remove it")
        kept = [each for each in before["replays"] if _of(each) != _of(document)]
    except FileNotFoundError:
        kept = []
    except (ValueError, KeyError, TypeError) as error:
        raise NotKept(f"{path}: {_reason(error)}; remove it") from None
    text = json.dumps({"schema_version": _VERSION, "replays": [*kept, document]}, indent=1) + "\n"
    handle, draft = tempfile.mkstemp(dir=folder, prefix=f".{REPLAYS}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return path


def _read(path: Path) -> Any:
    if path.stat().st_size > _MOST:
        raise ValueError("is too large")
    return json.loads(path.read_text(encoding="utf-8"))


def _of(document: Any) -> tuple[object, ...]:
    return document["op"], document["step"], document["rank"]


def _place(path: str) -> str:
    return os.path.realpath(path)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"has no {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
