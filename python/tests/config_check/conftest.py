"""Runs trainings in children that are forked off this process: torch is imported once."""

from __future__ import annotations

import fnmatch
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch._dynamo  # noqa: F401  The first optimizer of each child would load it again.

import probe.config_check.collection  # noqa: F401  The same; it watches nothing until it is asked to.

from .training import SCRIPT

# A child that is forked off must not need threads that only its parent has.
torch.set_num_threads(1)

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


#: Seconds that a child may take.
PATIENCE = 120


class Hanging(Exception):
    """A child did not end."""


def in_child(work: Callable[[], None], environment: dict[str, str] | None = None) -> Callable[[], None]:
    """Runs `work` in a forked child; the result waits for it and raises what it raised, or `Hanging`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            os.environ.update(environment or {})
            work()
            status = 0
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-60_000:])
        finally:
            # What was registered for the end of an interpreter that was begun here runs here.
            try:
                _run_exit_functions()
            finally:
                os._exit(status)
    os.close(writer)

    def wait() -> None:
        text, until = b"", time.monotonic() + PATIENCE
        while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
            if not (chunk := os.read(reader, 65536)):
                break
            text += chunk
        else:
            os.kill(child, signal.SIGKILL)
        os.close(reader)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise Hanging(f"nothing was heard of the child for {PATIENCE} s")
        assert status == 0, f"child ended with {status}:\n{text.decode()}"

    return wait


def _run_exit_functions() -> None:
    # Only what was registered in the child: the rest belongs to the parent.
    for function, arguments in _registered:
        function(*arguments)


_registered: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def run_script(path: Path) -> None:
    """Runs a script as the interpreter would run it."""
    import atexit

    atexit.register = lambda function, *arguments: _registered.append((function, arguments))  # type: ignore[assignment]
    atexit.unregister = lambda function: _registered.__setitem__(  # type: ignore[assignment]
        slice(None), [entry for entry in _registered if entry[0] != function]
    )
    sys.argv = [str(path)]
    runpy.run_path(str(path), run_name="__main__")


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
            in_child(lambda: run_script(script), {"PACK": str(folder / "pack.zip"), **(environment or {})})()
            known[key] = Pack(folder / "pack.zip")
        return known[key]

    return get


class Checked(NamedTuple):
    """What `probe config-check` says of two packs."""

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
