"""What importing the package costs, and what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import probe

ROOT = Path(probe.__file__).resolve().parents[1]


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_the_import_loads_neither_torch_nor_the_core_and_takes_no_time() -> None:
    heavy = "{'torch', 'numpy', 'probe._core', 'probe.settings', 'json', 're', 'typing'}"
    assert run(f"import sys; before = set(sys.modules); import probe; print({heavy} & set(sys.modules) - before)").strip() == "set()"
    # CPU time of the fastest of several, so that a busy machine does not fail it; the limit is that of the specification.
    seconds = [float(run("import time; t = time.process_time(); import probe; print(time.process_time() - t)")) for _ in range(3)]
    assert min(seconds) < 0.05


def test_the_settings_need_no_torch() -> None:
    code = "import sys, probe; probe.Settings; probe.PrecisionDebugger(dump_path='x'); import probe.launch; print('torch' in sys.modules)"
    assert run(code).strip() == "False"


def test_every_public_name_is_listed() -> None:
    assert {"capture", "Capture", "save", "seed_all", "PrecisionDebugger", "ApiProfiler"} <= set(dir(probe))
    for name in ("save", "seed_all", "PrecisionDebugger", "ApiProfiler", "Settings", "SettingsError"):
        assert callable(getattr(probe, name))


def test_a_misspelt_name_comes_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'PrecisionDebugger'"):
        probe.PrecisionDebuger  # noqa: B018
