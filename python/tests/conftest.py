"""Shared parts of the tests: a stand-in for the recorder, and programs that run below the bootstrap as `probe capture` runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest

try:
    import torch
except ImportError:
    pass
else:
    # Processes of pytest run beside one another: more threads in each would wait for one another most of the time.
    torch.set_num_threads(1)

HERE = Path(__file__).resolve().parent
PACKAGE = Path(__import__("probe").__file__).resolve().parent
BOOTSTRAP = PACKAGE / "_bootstrap"


class Log:
    """Calls of the stand-in, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def events(self) -> list[str]:
        return [record["event"] for record in self.records()]

    def settings(self) -> dict[str, Any]:
        return next(record["settings"] for record in self.records() if record["event"] == "made")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    path = tmp_path / "recorder.log"
    monkeypatch.setenv("FAKE_LOG", str(path))
    return Log(path)


@pytest.fixture
def recorder(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """The stand-in in this very process."""
    for name in ("probe.recorder", "probe.recorder._session"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
    sys.path.insert(0, str(HERE))
    try:
        import fake_recorder
    finally:
        sys.path.remove(str(HERE))
    fake_recorder.install()
    yield log


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Returns what was printed to standard error since the last call, with nothing left unsaid because it was said before."""
    from probe import messages

    monkeypatch.setattr(messages, "_said", set())
    return lambda: capsys.readouterr().err


Launched = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def launched(tmp_path: Path, log: Log) -> Launched:
    """Run a program with the environment that `probe capture` gives to it. `options` are the settings of the command line. Torch is imported
    already, unless `interpreter` names another one."""

    def run(
        program: str,
        *arguments: str,
        options: dict[str, Any] | None = None,
        config: Path | None = None,
        environment: dict[str, str] | None = None,
        path: str = "",
        interpreter: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(program))
        order = {"config": str(config) if config else None, "arguments": options or {}, "directory": str(tmp_path)}
        # As the command does: the process that sets the variable becomes the program.
        become = "import os, sys; os.environ['PROBE_CAPTURE_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
        folders = [str(BOOTSTRAP), path, str(PACKAGE.parent), str(HERE), os.environ.get("PYTHONPATH", "")]
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PROBE_")}
        return subprocess.run(
            [sys.executable, "-S", "-c", become, interpreter or fork_server.python(), str(script), *arguments],
            env=plain
            | {"PROBE_CAPTURE": json.dumps(order), "PYTHONPATH": os.pathsep.join(filter(None, folders)), "FAKE_LOG": str(log.path)}
            | (environment or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
