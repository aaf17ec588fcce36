"""Parts of tensors that are recorded in their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dumps import Dump
from probe import PrecisionDebugger
from probe.settings import SettingsError

ROWS = [{"dim": 0, "size": 16, "begin": 4, "end": 6}]


@pytest.mark.parametrize("level", ["api", "op"])
def test_the_part_is_recorded_and_the_program_has_the_whole(record: Any, level: str) -> None:
    whole = torch.arange(16.0 * 300).view(16, 300)

    def work() -> None:
        assert torch.relu(whole).shape == (16, 300)
        torch.relu(whole.t())
        torch.relu(torch.ones(3))

    relus = [op for op in record(work, level=level, slices=ROWS).ops if "relu" in op.name]
    assert [op["output.0"].shape for op in relus] == [(2, 300), (300, 16), (3,)]
    assert torch.equal(relus[0]["input.0"].data, whole[4:6]) and torch.equal(relus[0]["output.0"].data, whole[4:6])


def test_a_rule_for_each_dimension(record: Any) -> None:
    rules = [*ROWS, {"dim": 1, "size": 300, "begin": 299, "end": 300}]
    op = record(lambda: torch.relu(torch.arange(16.0 * 300).view(16, 300)), slices=rules)["Torch.relu.0.forward"]
    assert op["output.0"].data.tolist() == [[4 * 300 + 299], [5 * 300 + 299]]


@pytest.mark.parametrize("level", ["api", "op"])
def test_a_part_that_is_written_in_place_is_measured_again(record: Any, level: str) -> None:
    x = torch.ones(16, 1000)
    op = next(op for op in record(lambda: x.mul_(3), level=level, task="sketch", slices=ROWS).ops if "mul_" in op.name)
    assert (op["input.0"].max, op["output.0"].max, op["output.0"].shape) == (1, 3, (2, 1000))


def test_one_request_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({"task": "tensor", "dump_path": "dump", "level": "L1", "tensor": {"request_id": "b"}}))
    debugger = PrecisionDebugger("config.json")
    try:
        for scheduled in ({"a": 2, "b": 3}, {"a": 1}, {"b": 1, "c": 4}):
            debugger.start(scheduled_tokens=scheduled)
            torch.relu(torch.arange(float(sum(scheduled.values()))))
            debugger.stop()
            debugger.step()
        with pytest.raises(SettingsError, match="request_id 'b' needs the batch"):
            debugger.start()
    finally:
        PrecisionDebugger.forget()
    # The second batch does not have the request.
    assert Dump("dump", 0)["Torch.relu.0.forward"]["output.0"].data.tolist() == [2, 3, 4]
    assert not Path("dump/step1").exists()
    assert Dump("dump", 2)["Torch.relu.0.forward"]["output.0"].data.tolist() == [0]
