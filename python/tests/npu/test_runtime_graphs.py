"""Graphs on the simulated device (`torch.npu.NPUGraph`): what their replays computed is recorded, and nothing waits while one is captured, which the device would refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import runtime_dump
import simulator
import torch
from extent import chosen
from simulator import Done

PROGRAM = simulator.HERE / "graphs.py"
Compare = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("agent")


def run(folder: Path, output: str | None = None, *options: object, steps: str = "1", task: str = "tensor", **switches: Any) -> Done:
    probe = None if output is None else ["--runtime", "acl", "--steps", steps, "--step-on", "program", "--task", task, "-o", output, *options]
    return simulator.run(folder, PROGRAM, probe=probe, **switches)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Output of the program where nothing is recorded."""
    return run(tmp_path_factory.mktemp("plain")).result


def bits(tensor: torch.Tensor) -> list[str]:
    return [value.hex() for value in tensor.flatten().tolist()]


def in_graphs(launches: list[runtime_dump.Launch]) -> list[runtime_dump.Launch]:
    return [launch for launch in launches if "replay of graph " in launch.note]


# With 2, torch_npu captures no graphs.
@pytest.mark.parametrize("queue", chosen(["1", "0"], ["1"]))
def test_every_replay_of_a_recorded_step_is_recorded_with_what_it_computed(tmp_path: Path, plain: Any, queue: str) -> None:
    trace = tmp_path / "trace"
    # Slower than the program by far: each replay comes before the one before it has run, let alone been read.
    recorded = run(tmp_path, "npu", "--graph-memory", "64KiB", steps="0,2", variables={"TASK_QUEUE_ENABLE": queue}, latency=200, trace=trace)
    assert recorded.result == plain, recorded.stderr
    assert sorted(step.name for step in (tmp_path / "npu").glob("step*")) == ["step0", "step2"]
    everything = trace.read_text().split()
    for step in (0, 2):
        launches = runtime_dump.read(tmp_path / "npu", step)
        names = [launch.operator for launch in launches]
        assert any(everything[start : start + len(names)] == names for start in range(len(everything))), names
        shown = recorded.result["steps"][step]
        found = in_graphs(launches)
        # Three replays of the model, each with the values of its own input.
        gelu = [launch for launch in found if launch.operator == "GeluV2"]
        assert len(gelu) == 3 and len({tuple(bits(launch.outputs[0])) for launch in gelu}) == 3
        last = [launch for launch, after in zip(found, found[1:], strict=False) if launch.operator == "Addmm" and after.operator != "GeluV2"]
        assert [bits(launch.outputs[0]) for launch in last][:3] == shown["model"]
        # Graphs that come and go are all there, in memory that others have had before, and of which there is too little for three.
        assert [bits(launch.outputs[0][0, :4]) for launch in found if launch.operator == "Adds"] == shown["passing"]
        wrong = [text for launch in launches if runtime_dump.GROUPED not in launch.note and (text := runtime_dump.check(launch))]
        assert not wrong, wrong
        # An operator that gets other arguments from replay to replay is listed alone: copies beside it would be counted among what is changed.
        grouped = [launch for launch in found if runtime_dump.GROUPED in launch.note]
        assert [launch.operator for launch in grouped] == ["Muls"], names
        # A whole step of training ran in a graph, too: forward, backward and the optimizer.
        assert [bits(launch.outputs[0]) for launch in found if launch.operator == "Mean"] == shown["losses"]
        assert {launch.operator for launch in found} >= {"Mm", "ForeachAddListV2"}, names
    assert "NOT RECORDED" not in recorded.stderr and "did not fit" not in recorded.stderr, recorded.stderr


def test_a_fault_in_a_graph_is_named(tmp_path: Path, compare: Compare) -> None:
    # Two calls warm up; the third is captured. Without the operator of the group, which has no values: the comparison would be incomplete.
    for name, fault in (("good", None), ("bad", "GeluV2:2:scale")):
        done = run(tmp_path, name, "--exclude", "aclnnMuls", task="sketch", fault=fault)
        assert done.code == 0 and (done.faults > 0) == (fault is not None), done.stderr
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["op"]) == (1, "Aclnn.GeluV2.0.forward"), first


@pytest.mark.parametrize("memory", ["2KiB", "0"])
def test_what_does_not_fit_is_told(tmp_path: Path, plain: Any, memory: str) -> None:
    recorded = run(tmp_path, "npu", "--graph-memory", memory, task="statistics")
    assert recorded.result == plain, recorded.stderr
    said = recorded.stderr
    rows = pyarrow.parquet.read_table(tmp_path / "npu" / "step1" / "rank0" / "ops.parquet").to_pylist()
    listed = [row for row in rows if "replay of graph " in (row["note"] or "")]
    if memory == "0":
        assert not listed and "graphs are NOT RECORDED: --graph-memory is 0" in said, said
        replays, operators = (re.search(rf"^probe: runtime: (\d+) {what}", said, re.MULTILINE) for what in ("replays of graphs are NOT RECORDED", "operators in replays of graphs"))
        # Three replays of the model's three operators, two of one each, the one whose arguments change in each of three steps, and the training.
        training = sum(recorded.counts["captured"].values()) - 3 - 3 * 2 - (1 + 3)
        assert replays and operators and (int(replays[1]), int(operators[1])) == (7, 3 * 3 + 2 + 1 + training), said
    else:
        without = {row["op"] for row in listed if "does not fit" in row["note"]}
        assert without and len(without) < len({row["op"] for row in listed}), said
        assert re.search(r"^probe: runtime: \d+ operators of graphs did not fit", said, re.MULTILINE), said
