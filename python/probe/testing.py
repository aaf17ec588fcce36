"""Test helpers: assert that two runs agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def assert_runs_agree(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    policy: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> None:
    """Raise AssertionError with the op, the numbers and the source line if the runs differ.

    Each is a dump, a baseline (NAME.probe.json) or a file of scalars by step. `policy` is a `probe-gate.toml`;
    without one, scalars must be equal, and values are judged as in `probe compare`. The reports of `probe gate` go to
    `output`, if given.
    """
    __tracebackhide__ = True
    code, text = gate(baseline, candidate, policy=policy, output=output)
    if code == 2:
        raise ValueError(text)
    assert code == 0, text


def gate(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    policy: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> tuple[int, str]:
    """Returns the exit code and the output of `probe gate`; `more` are further files of the candidate."""
    command = ["gate", "--baseline", os.fspath(baseline)]
    for path in (candidate, *more):
        command += ["--candidate", os.fspath(path)]
    if policy is not None:
        command += ["--policy", os.fspath(policy)]
    return command_line(*command, "-o", "-" if output is None else os.fspath(output))


def command_line(*arguments: str) -> tuple[int, str]:
    """Returns the exit code of the command `probe` and all of its output."""
    # A separate process keeps its output apart, and its own folder does not shadow the package.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROBE_")}
    package = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "probe", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout
