"""The cost of importing the package, and its names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from extent import EVERYTHING

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


@pytest.mark.skipif(not EVERYTHING, reason="part of ./test.sh --all: with the features of the wheel alone the library is compiled once more")
def test_the_wheel_that_maturin_builds_can_be_installed_and_used(tmp_path: Path) -> None:
    repository = Path(__file__).resolve().parents[2]
    maturin = shutil.which("maturin", path=str(Path(sys.executable).parent)) or "maturin"
    subprocess.run([maturin, "build", "--quiet", "--locked", "--profile", "dev", "--interpreter", sys.executable, "--out", tmp_path / "wheels"], cwd=repository, check=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    packaged = {path.relative_to(repository / "python").as_posix() for path in (repository / "python/probe").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so")}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("probe/")}
    assert names - {"probe/libprobe_agent.so"} == packaged | {"probe/_core.abi3.so"}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    binaries = tmp_path / "environment" / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PROBE_", "PYTHON"))}
    data = repository / "testdata"
    command = [binaries / "probe", "compare", "-b", data / "gpu_dump", "-c", data / "npu_dump", "-o", tmp_path / "report"]
    done = subprocess.run(command, env=plain, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.startswith("first divergence: "), done.stdout + done.stderr
