"""Runs a training under capture, and compares two dumps."""

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

Compared = tuple[int, dict[str, Any]]


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., Compared]:
    """Exit code and `report.json` of `probe compare`."""

    def run(baseline: Path, candidate: Path, *arguments: str) -> Compared:
        report = tmp_path / f"report-{baseline.name}-{candidate.name}"
        command = os.environ.get("PROBE_BIN")
        start = [command] if command else [sys.executable, "-m", "probe"]
        done = subprocess.run(
            [*start, "compare", "-b", baseline, "-c", candidate, "-o", report, "--format", "json,parquet", "-q", *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1, 3), done.stderr
        return done.returncode, json.loads((report / "report.json").read_text())

    return run
