"""Pytest plugin: a test checks its training against a baseline in the repository.

    def test_step(probe_gate):
        with probe_gate("gpt2", steps=[0, 1]) as gate:
            for step, loss in enumerate(train()):
                gate.log("loss", step, loss)

The baseline is `probe_baselines/gpt2.probe.json` beside the test; `pytest --probe-update` writes it. Each test
records into its own folder, so tests can run in parallel (pytest-xdist).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Folder of the baselines, beside the test.
_FOLDER = "probe_baselines"
#: Baseline names are also file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("probe", "model numbers checked against a baseline")
    group.addoption("--probe-update", action="store_true", help="write the baselines of probe_gate instead of checking tests against them")
    group.addoption("--probe-reason", metavar="WHY", default="", help="why they change; needed to change an existing one")
    parser.addini("probe_baselines", f"folder of the baselines [default: {_FOLDER} beside the test]", default="")
    parser.addini("probe_policy", "policy (probe-gate.toml) of the gates", default="")


class Run:
    """Values that a test reports while it is recorded."""

    def __init__(self) -> None:
        self.scalars: list[dict[str, Any]] = []

    def log(self, name: str, step: int, value: Any) -> None:
        """Check a scalar such as a loss or norm against the baseline too. `value` is a number or a tensor of one
        element."""
        number = float(value)
        self.scalars.append({"step": int(step), name: number})


class Gate:
    """Records what runs in its `with` block, and fails the test if it differs from the baseline."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._config = request.config
        self._test = request.path
        self._folder = folder
        self._names: set[str] = set()

    @contextmanager
    def __call__(self, name: str, *, policy: str | None = None, **settings: Any) -> Iterator[Run]:
        """`settings` are those of `probe.capture`; modules are recorded unless they say otherwise."""
        __tracebackhide__ = True
        if not _NAME.match(name):
            raise ValueError(f"probe_gate: {name!r} is not a file name")
        if name in self._names:
            raise ValueError(f"probe_gate: {name!r} is used twice in this test; each gate needs its own name")
        self._names.add(name)
        import probe

        dump = self._folder / f"{name}.dump"
        run = Run()
        with probe.capture(str(dump), **{"level": "module", **settings}):
            yield run
        inputs = [dump]
        if run.scalars:
            scalars = self._folder / f"{name}.jsonl"
            scalars.write_text("".join(json.dumps(entry) + "\n" for entry in run.scalars), encoding="utf-8")
            inputs.append(scalars)
        self._judge(name, inputs, policy)

    def _judge(self, name: str, inputs: list[Path], policy: str | None) -> None:
        __tracebackhide__ = True
        from probe.testing import gate

        folder = self._config.getini("probe_baselines")
        folder = self._config.rootpath / folder if folder else self._test.parent / _FOLDER
        baseline = folder / f"{name}.probe.json"
        if self._config.getoption("--probe-update"):
            self._update(baseline, inputs)
            return
        if not baseline.exists():
            pytest.fail(f"no baseline {baseline}; write it with pytest --probe-update", pytrace=False)
        policy = policy or self._config.getini("probe_policy") or None
        path = self._config.rootpath / policy if policy else None
        output = self._folder / f"{name}.gate"
        code, text = gate(baseline, inputs[0], *inputs[1:], policy=path, output=output)
        if code != 0:
            pytest.fail(f"{text}\nrefresh the baseline with pytest --probe-update --probe-reason WHY if this is right", pytrace=False)

    def _update(self, baseline: Path, inputs: list[Path]) -> None:
        __tracebackhide__ = True
        from probe.testing import command_line

        files = [str(path) for path in inputs]
        reason = self._config.getoption("--probe-reason")
        if not baseline.exists():
            baseline.parent.mkdir(parents=True, exist_ok=True)
            code, text = command_line("baseline", "save", *files, "-o", str(baseline), "--reason", reason or "pytest --probe-update")
        else:
            code, text = command_line("baseline", "diff", str(baseline), files[0]) if len(files) == 1 else (1, "")
            if code == 0:
                return
            if not reason:
                pytest.fail(f"{text}\n{baseline} already exists; say why it changes: --probe-reason WHY", pytrace=False)
            code, text = command_line("baseline", "update", str(baseline), *files, "--accept", "--reason", reason)
        if code != 0:
            pytest.fail(text, pytrace=False)


@pytest.fixture
def probe_gate(request: pytest.FixtureRequest, tmp_path: Path) -> Gate:
    """Check what runs in `with probe_gate(NAME):` against the baseline NAME.probe.json."""
    return Gate(request, tmp_path)
