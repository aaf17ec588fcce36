"""Trainings that pack themselves, and what their packs hold."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fork_server
import pytest

from .training import SCRIPT

# Says what ran, not how; it differs whenever the script does.
_IGNORED = ("source:*", "pip:*", "random:calls.*.place")


class Pack:
    """A pack, read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            assert len(names) == len(set(names))
            self.text = {name: archive.read(name).decode() for name in names}
        self.manifest: dict[str, Any] = json.loads(self.text["manifest.json"])

    def part(self, name: str, rank: int = 0) -> Any:
        return json.loads(self.text[f"rank{rank}/{name}.json"])

    def leaves(self, rank: int = 0) -> dict[str, Any]:
        """`part:key` of every value."""
        found: dict[str, Any] = {}
        for name in self.text:
            if name.startswith(f"rank{rank}/"):
                part = name.split("/")[1].removesuffix(".json")
                found.update({f"{part}:{key}": value for key, value in _leaves(self.part(part, rank))})
        return found


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        names: list[Any] = []
        for index, item in enumerate(value):
            name = next((item[key] for key in ("name", "step", "mark", "path", "function") if key in item), index)
            names.append(name)
            name = name if names.count(name) == 1 else f"{name}#{names.count(name)}"
            yield from _leaves(item, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def differences(a: Pack, b: Pack, rank: int = 0) -> set[str]:
    """Keys that differ, or that one side lacks."""
    x, y = a.leaves(rank), b.leaves(rank)
    missing = object()
    keys = {key for key in x.keys() | y.keys() if x.get(key, missing) != y.get(key, missing)}
    return {key for key in keys if not any(fnmatch.fnmatch(key, pattern) for pattern in _IGNORED)}


#: Seconds that a training may take.
PATIENCE = 120


class Hanging(Exception):
    """A training did not end."""


def start(script: Path, environment: dict[str, str] | None = None) -> Callable[[], None]:
    """Starts a training with these variables; the result waits for it, and raises an AssertionError with what it said if it failed, or `Hanging`."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    program = subprocess.Popen([fork_server.python(), script], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait() -> None:
        try:
            said, _ = program.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            program.communicate()
            raise Hanging(f"nothing was heard of the training for {PATIENCE} s") from None
        assert program.returncode == 0, f"the training ended with {program.returncode}:\n{said}"

    return wait


def run(script: Path, environment: dict[str, str] | None = None) -> None:
    """Runs a training to its end."""
    start(script, environment)()


Packed = Callable[..., Pack]


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The pack of the training, with replacements in its text and variables in its environment. Equal requests share one."""
    known: dict[Any, Pack] = {}

    def get(*changes: tuple[str, str], environment: dict[str, str] | None = None) -> Pack:
        key = (changes, tuple(sorted((environment or {}).items())))
        if key not in known:
            folder = tmp_path_factory.mktemp("training")
            script = folder / "train.py"
            script.write_text(changed(*changes))
            run(script, {"PACK": str(folder / "pack.zip"), **(environment or {})})
            known[key] = Pack(folder / "pack.zip")
        return known[key]

    return get


class Checked(NamedTuple):
    """Returns the answer of `probe config-check` for two packs."""

    code: int
    #: Verdict by part.
    verdicts: dict[str, str]
    #: Part and key of the rows that count as differences.
    rows: list[str]


@pytest.fixture
def checked(tmp_path: Path) -> Callable[[Pack, Pack], Checked]:
    """Runs the command."""

    def check(a: Pack, b: Pack) -> Checked:
        command = os.environ.get("PROBE_BIN")
        start = [command] if command else [sys.executable, "-m", "probe"]
        done = subprocess.run(
            [*start, "config-check", a.path, b.path, "-o", tmp_path / "report", "-q"], capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        parts = json.loads((tmp_path / "report" / "config.json").read_text())["parts"]
        rows = [f"{name}: {row['key']}" for name, part in parts.items() for row in part["rows"] if row["verdict"] == "diff"]
        return Checked(done.returncode, {name: part["verdict"] for name, part in parts.items()}, rows)

    return check


def changed(*changes: tuple[str, str]) -> str:
    """The training with each first text replaced by the second."""
    text = SCRIPT
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        if old.startswith("# "):
            # Keeps the place for others, and its indentation.
            indent = text[: text.index(old)].rsplit("\n", 1)[1]
            new = f"{old}\n" + "\n".join(indent + line for line in new.splitlines())
        text = text.replace(old, new)
    return text
