"""Git state of a folder: commit, changed files. Runs the command `git` with a short timeout."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

_SECONDS = 5.0
_MAX_DIFF = 64 << 20
_MAX_FILES = 200


def state(folder: Path) -> dict[str, Any] | None:
    """Commit, whether files differ from it and which ones; None outside a repository."""
    status = _git(folder, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--no-renames")
    lines = (status or b"").decode("utf-8", "replace").split("\0")
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), None)
    if commit is None or commit == "(initial)":
        return None
    # The name is the ninth field of a changed file and the eleventh of an unmerged one.
    changed = [line.split(" ", {"1": 8, "u": 10}[line[0]])[-1] for line in lines if line[:1] in ("1", "u")]
    found: dict[str, Any] = {"commit": commit, "dirty": bool(changed)}
    if changed:
        found["changed"] = sorted(changed)[:_MAX_FILES]
        difference = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv")
        if difference is not None and len(difference) <= _MAX_DIFF:
            found["diff_sha256"] = hashlib.sha256(difference).hexdigest()
    return found


def commit_of(folder: Path) -> str | None:
    """Commit of the repository that contains `folder`, with `-dirty` if files differ from it."""
    found = state(folder)
    if found is None:
        return None
    return found["commit"] + ("-dirty" if found.get("dirty") else "")


def _git(folder: Path, *arguments: str) -> bytes | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # Take no locks, ask no questions and run nothing on behalf of the repository.
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-C", os.fspath(folder), *arguments]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout if answer.returncode == 0 else None
