"""A few commits of benches/history: regressions are caught on their commit with the right op, drift is called drift, nothing sound fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

BENCH = Path(__file__).resolve().parents[2] / "benches" / "history" / "run.py"
#: A commit of each kind that takes few runs.
ONLY = "^(rename a variable|scale of the block off by 1e-5|gradients of the block off by 1e-3|learning rate off by 1e-2|older instructions)$"


def test_a_few_commits_of_the_simulated_history(tmp_path: Path) -> None:
    python = fork_server.python("transformers.models.gpt2.modeling_gpt2")
    command = [sys.executable, str(BENCH), str(tmp_path / "history"), "--python", python, "--only", ONLY, "--calibrated", "1", "1", "1"]
    if probe := os.environ.get("PROBE_BIN"):
        command += ["--probe", probe]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROBE_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "history" / "results.json").read_text())
    assert [found["state"] for found in results] == ["pass", "regression", "regression", "regression", "drift"]
    assert results[1]["culprit"].startswith("Tensor.__mul__") and results[1]["source"].endswith("model.py:23")
    assert results[4]["moved_by"] == "environment"
