"""Writes a pack to disk: each rank writes its part, and the rank that finds all parts present merges them.

No rank waits for another: a missing rank costs its own part, never the run. A complete pack gets its name by rename,
so a reader sees a whole pack or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe.config_check import encoding

FORMAT = "probe-pack"
VERSION = 1

_EPOCH = (1980, 1, 1, 0, 0, 0)
_STALE_SECONDS = 24 * 3600.0
_LOCK_SECONDS = 10.0


def write_rank(output: Path, run: str, rank: int, world_size: int, facts: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Writes the part of rank `rank`; merges all ranks if this was the last one. Returns true if the pack is
    complete.

    `facts` are the manifest keys that do not follow from the members.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    members = {f"rank{rank}/{name}.json": encoding.member(content) for name, content in parts.items()}
    if world_size <= 1:
        _write(output, [rank], world_size, {rank: facts}, members)
        return True
    folder = parts_folder(output, run)
    folder.mkdir(mode=0o700, exist_ok=True)
    body = io.BytesIO()
    _zip(body, {"facts.json": encoding.member(facts), **members})
    _replace(folder / f"rank{rank}", body.getvalue())
    return merge(output, run, world_size, complete_only=True)


def merge(output: Path, run: str, world_size: int, *, complete_only: bool) -> bool:
    """Merges the parts found so far into the pack. Returns true if none is missing."""
    folder = parts_folder(output, run)
    with _lock(folder) as held:
        if not held:
            return not folder.exists()
        ranks = sorted(int(path.name[4:]) for path in folder.glob("rank*") if path.name[4:].isdigit())
        complete = len(ranks) >= world_size
        if not ranks or (complete_only and not complete):
            return False
        facts: dict[int, dict[str, Any]] = {}
        members: dict[str, bytes] = {}
        for rank in ranks:
            with zipfile.ZipFile(folder / f"rank{rank}") as part:
                for name in part.namelist():
                    if name == "facts.json":
                        facts[rank] = json.loads(part.read(name))
                    else:
                        members[name] = part.read(name)
        _write(output, ranks, world_size, facts, members)
        if complete:
            shutil.rmtree(folder, ignore_errors=True)
        return complete


def parts_folder(output: Path, run: str) -> Path:
    """Folder where the ranks of run `run` leave their parts."""
    return output.parent / f".{output.name}.{run}.parts"


def sweep(output: Path) -> None:
    """Removes parts that dead runs left beside `output` more than a day ago."""
    for folder in output.parent.glob(f".{output.name}.*.parts"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def check_writable(output: Path) -> None:
    """Raises `OSError` if the pack cannot be written, before any work is done for it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder, a pack is a file")
    probe = output.parent / f".{output.name}.{os.getpid()}.test"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()


def _write(
    output: Path, ranks: list[int], world_size: int, facts: dict[int, dict[str, Any]], members: dict[str, bytes]
) -> None:
    first = facts[ranks[0]] if ranks[0] in facts else {}
    devices = [fact.get("device", {}) for fact in facts.values()]
    names = list(dict.fromkeys(name for device in devices for name in device.get("names", [])))
    absent: dict[str, str] = {}
    for fact in facts.values():
        for part, reason in fact.get("absent", {}).items():
            # A part that failed at one step is present if other steps recorded it.
            if reason.startswith("failed: ") or not any(f"rank{rank}/{part}.json" in members for rank in ranks):
                absent.setdefault(part, reason)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tool": first.get("tool", {"name": "probe", "version": ""}),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"framework": first["framework"]} if "framework" in first else {}),
        "device": {
            "kind": devices[0].get("kind", "cpu") if devices else "cpu",
            "names": names,
            "count": max((device.get("count", 0) for device in devices), default=0),
        },
        "world_size": world_size,
        "ranks": ranks,
        "steps": sorted({step for fact in facts.values() for step in fact.get("steps", [])}),
        "members": {
            name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)} for name, body in members.items()
        },
        "absent": absent,
    }
    body = io.BytesIO()
    _zip(body, {"manifest.json": encoding.member(manifest), **members})
    _replace(output, body.getvalue())


def _zip(target: io.BytesIO, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, body in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            archive.writestr(info, body)


def _replace(path: Path, body: bytes) -> None:
    """Replaces `path` with `body` atomically, readable by its owner only."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Holds the lock of `folder` during a merge. The lock ends with its process, so none is left behind. If the file
    system has no locks or the lock cannot be had in time, yields false or proceeds as if it were held."""
    try:
        import fcntl

        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except (ImportError, FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.02)
            except OSError:
                break
        # The last rank may have merged and removed the folder in the meantime.
        yield (folder / "lock").exists()
    finally:
        os.close(handle)
