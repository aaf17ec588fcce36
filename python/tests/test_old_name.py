"""`import msprobe`, answered by probe: in a program, and below `probe capture`, as engines that have the older tool built in use it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest

import probe


@pytest.fixture
def answered() -> Iterator[None]:
    before = list(sys.meta_path)
    probe.as_msprobe()
    yield
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "msprobe"]:
        del sys.modules[name]


def test_every_part_is_found_under_its_old_name(answered: None, said: Callable[[], str]) -> None:
    probe.as_msprobe()
    assert importlib.util.find_spec("msprobe") is not None and importlib.util.find_spec("msprobe.pytorch") is not None
    from msprobe.core.config_check import ConfigChecker
    from msprobe.pytorch import ApiProfiler, PrecisionDebugger, module_dump, seed_all

    assert (ConfigChecker, ApiProfiler, PrecisionDebugger) == (probe.config_check.ConfigChecker, probe.ApiProfiler, probe.PrecisionDebugger)
    assert module_dump == PrecisionDebugger.module_dump and callable(seed_all)
    assert said() == "probe: import msprobe is answered by probe\n"


def test_mindspore_has_its_own_debugger(answered: None) -> None:
    assert importlib.util.find_spec("msprobe.mindspore") is not None
    if importlib.util.find_spec("mindspore") is None:
        with pytest.raises(ImportError, match="mindspore"):
            from msprobe.mindspore import PrecisionDebugger


def test_what_is_not_there_says_what_to_do(answered: None, said: Callable[[], str]) -> None:
    with pytest.raises(ImportError, match="msprobe.pytorch.monitor: not a part that probe answers"):
        import msprobe.pytorch.monitor
    with pytest.raises(ImportError):
        from msprobe.pytorch import TrainerMon
    assert "msprobe.pytorch.TrainerMon: not a part" in said()
    import msprobe.pytorch

    assert not hasattr(msprobe.pytorch, "__wrapped__") and said() == ""


def test_the_older_tool_itself_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = types.ModuleType("msprobe")
    real.__file__ = "/site-packages/msprobe/__init__.py"
    monkeypatch.setitem(sys.modules, "msprobe", real)
    with pytest.raises(ImportError, match=r"msprobe itself \(/site-packages/msprobe/__init__.py\) is imported already"):
        probe.as_msprobe()


#: Built-in code of an engine: it makes the debugger where its switch names a file, and surrounds each batch.
ENGINE = """
import os, sys
import torch
{engine}
class Runner:
    def __init__(self, path):
        from msprobe.pytorch import PrecisionDebugger
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        self.debugger = PrecisionDebugger(path)
    def execute(self, number):
        self.debugger.start(model=self.model)
        with torch.no_grad():
            self.model(torch.full((1, 2), float(number)))
        self.debugger.stop()
        self.debugger.step()
runner = Runner("config.json")
for number in range(4):
    runner.execute(number)
print(runner.debugger.config.dump_path)
"""


def capture(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "engine.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "probe", "capture", *options, "--", fork_server.python(), "engine.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step*"))


def test_an_engine_records_as_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": "./engine_dump", "level": "L0", "step": [1, 3]}))
    done = capture(tmp_path, ENGINE.format(engine=""))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/engine_dump\n"), done.stderr
    assert steps(tmp_path / "engine_dump") == ["step1", "step3"] and not (tmp_path / "probe_dump").exists()
    assert done.stderr.count("recorded steps 1,3") == 1


def test_what_the_command_names_wins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": "./engine_dump", "level": "L0", "step": [1, 3]}))
    done = capture(tmp_path, ENGINE.format(engine=""), "--steps", "2", "-o", "mine")
    assert (done.returncode, steps(tmp_path / "mine")) == (0, ["step2"]), done.stderr
    manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text())
    assert (manifest["level"], manifest["task"]) == ("module", "statistics") and not (tmp_path / "engine_dump").exists()


def test_a_model_that_ran_before_is_the_commands(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": "./engine_dump", "level": "L0"}))
    done = capture(tmp_path, ENGINE.format(engine="torch.nn.Linear(2, 2)(torch.ones(1, 2))"), "--steps", "0-1", "-o", "mine")
    assert (done.returncode, steps(tmp_path / "mine")) == (0, ["step0", "step1"]), done.stderr
    assert "began before the program's own debugger was made" in done.stderr


def test_each_stage_of_verl_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As verl's profiler does it: the debugger is looked up as `_instance`, and the folder set before each start."""
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "level": "L0"}))
    model = torch.nn.Linear(2, 2)
    try:
        for number, stage in enumerate(("actor", "critic")):
            folder = tmp_path / stage
            folder.mkdir()
            if probe.PrecisionDebugger._instance is None:
                probe.PrecisionDebugger(config_path="config.json", dump_path=str(folder))
            debugger: Any = probe.PrecisionDebugger._instance
            debugger.service.config.dump_path = str(folder)
            debugger.start(model)
            model(torch.ones(1, 2))
            debugger.stop()
            debugger.step()
    finally:
        probe.PrecisionDebugger.forget()
    assert (steps(tmp_path / "actor"), steps(tmp_path / "critic")) == (["step0"], ["step1"])
