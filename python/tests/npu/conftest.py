"""Tests on the simulated Ascend device. Where it could not be built they are skipped, and counted as that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import simulator  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if simulator.STAMP.exists():
        return
    skipped = pytest.mark.skip(reason="the simulated Ascend device is not built: tests/ascend-sim/build.py says why")
    for item in items:
        if here in item.path.parents:
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def agent() -> None:
    """The agent below Python is there: a device without it is half a build, and no reason to skip."""
    assert simulator.AGENT.exists(), f"{simulator.AGENT} is not built: cargo build -p probe-agent"


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Exit code and `report.json` of `probe compare`."""

    def run(baseline: Path, candidate: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
        report = tmp_path / f"report-{baseline.name}-{candidate.name}"
        command = os.environ.get("PROBE_BIN")
        start = [command] if command else [sys.executable, "-m", "probe"]
        whole = [*start, "compare", "-b", baseline, "-c", candidate, "-o", report, "--format", "json", "-q", *arguments]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 3), done.stderr
        return done.returncode, json.loads((report / "report.json").read_text())

    return run
