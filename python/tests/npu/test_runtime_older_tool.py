"""Level `L2` of the older tool: its calls say which steps the agent below Python records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import runtime_dump
import simulator

pytestmark = pytest.mark.usefixtures("agent")

PROGRAM = """
import json, torch, torch_npu
from probe import PrecisionDebugger
debugger = PrecisionDebugger("config.json")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).to("npu:0")
total = 0.0
for _ in range(3):
    debugger.start(model)
    loss = model(torch.ones(4, 8).to("npu:0")).sum()
    debugger.stop()
    debugger.step()
    total += float(loss)
print(json.dumps(total))
"""


def test_the_steps_of_the_debugger_are_those_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    config = {"task": "tensor", "dump_path": "unused", "level": "L2", "step": [1]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = simulator.run(tmp_path, tmp_path / "program.py", probe=["--runtime", "acl", "--task", "tensor", "-o", "dump"])
    assert isinstance(done.result, float), done.stderr
    assert [path.name for path in (tmp_path / "dump").glob("step*")] == ["step1"], done.stderr
    launches = runtime_dump.read(tmp_path / "dump", 1)
    gelu = next(launch for launch in launches if launch.operator.startswith("Gelu"))
    assert gelu.scope is not None and "GELU" in gelu.scope, gelu
    assert [text for launch in launches if (text := runtime_dump.check(launch))] == []
    assert not (tmp_path / "unused").exists()
