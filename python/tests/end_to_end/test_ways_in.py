"""The three ways into a program record the same ops, and the comparison names the same one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest
import training

import probe
from probe.dropin import PrecisionDebugger

FAULT = "aten::gelu/1"
SCRIPT = Path(training.__file__)


def by_command(output: Path, fault: str | None, interpreter: str | None = None) -> str:
    """`probe capture -- python training.py …`; returns what the program printed."""
    done = subprocess.run(
        [sys.executable, "-m", "probe", "capture", "--steps", "0,1", "--level", "api", "-o", str(output),
         "--", interpreter or fork_server.python(), str(SCRIPT), "transformer", *([fault] if fault else [])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def by_api(output: Path, fault: str | None, level: str = "api") -> None:
    model, step = training.make("transformer")
    with training.device(fault), probe.capture(output, model=model, steps="0-1", level=level):
        for _ in range(3):
            step()


def by_debugger(output: Path, fault: str | None, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "statistics", "dump_path": str(output), "level": "L1", "step": [0, 1]}))
    model, step = training.make("transformer")
    debugger = PrecisionDebugger(config_path=str(config))
    with training.device(fault):
        for _ in range(3):
            debugger.start(model=model)
            step()
            debugger.stop()
            debugger.step()
    PrecisionDebugger.forget()


def test_the_command_changes_nothing_and_names_the_op(tmp_path, compare):
    plain = subprocess.run(
        [fork_server.python(), str(SCRIPT), "transformer"], capture_output=True, text=True, check=True
    ).stdout
    # As users do: with an interpreter that imports torch itself.
    assert by_command(tmp_path / "good", None, sys.executable) == plain
    by_command(tmp_path / "bad", FAULT)
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["op"]) == (1, 0, "Functional.gelu.1.forward")
    assert f"{SCRIPT.name}" in first["stack"][0] and "F.gelu" in first["stack"][0]


@pytest.mark.parametrize("way", ["api", "debugger"])
def test_the_other_ways_name_the_op(tmp_path, compare, way):
    for name, fault in (("good", None), ("bad", FAULT)):
        if way == "api":
            by_api(tmp_path / name, fault)
        else:
            by_debugger(tmp_path / name, fault, tmp_path)
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["step"], first["op"]) == (1, 0, "Functional.gelu.1.forward")


def test_two_ways_record_the_same(tmp_path, compare):
    by_command(tmp_path / "command", None)
    by_api(tmp_path / "api", None)
    code, report = compare(tmp_path / "command", tmp_path / "api")
    assert (code, report["verdict"]) == (0, "agree")


@pytest.mark.parametrize("level", ["api", "mix"])
def test_a_dump_of_the_older_tool_names_the_op(tmp_path, compare, level):
    """The baseline was recorded by the older tool (26.2.0, L1, statistics) from step 0 of this very training."""
    older = SCRIPT.parent / "older_tool"
    by_api(tmp_path / "good", None, level)
    by_api(tmp_path / "bad", FAULT, level)
    code, report = compare(older, tmp_path / "good", "--step", "0")
    assert (code, report["verdict"]) == (0, "agree")
    assert report["counts"]["ops_paired"] > 150
    code, report = compare(older, tmp_path / "bad", "--step", "0")
    assert (code, report["first_divergence"]["op"]) == (1, "Functional.gelu.1.forward")
