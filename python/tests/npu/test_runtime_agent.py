"""The agent below Python on the simulated NPU: what it records is what the device was given and computed, and the training stays what it is.

`./test.sh --all` runs all of it; without, a part that takes about a minute.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runtime_dump
import simulator
from extent import EVERYTHING, chosen
from simulator import Done

TRAIN = simulator.HERE / "train.py"
Compare = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("agent")


def train(folder: Path, model: str, *options: object, variables: dict[str, str] | None = None, **switches: Any) -> Done:
    return simulator.run(folder, TRAIN, model, "--device", "npu:0", *options, variables=variables, **switches)


def record(output: str, *options: object, steps: str = "1", task: str = "tensor") -> list[object]:
    return ["--runtime", "acl", "--steps", steps, "--task", task, "-o", output, *options]


MODES = [({}, {}), ({"TASK_QUEUE_ENABLE": "0"}, {}), ({"TASK_QUEUE_ENABLE": "2"}, {}), ({}, {"cache": 0}), ({}, {"latency": 200}), ({"TASK_QUEUE_ENABLE": "0"}, {"latency": 200})]
WHOLE = [*((model, {}, {}) for model in ("gpt", "resnet", "llama", "bert", "moe", "checkpointed")), *(("gpt", *mode) for mode in MODES[1:])]
FEW = [("gpt", {}, {}), ("resnet", {"TASK_QUEUE_ENABLE": "2"}, {})]


@pytest.mark.parametrize(("model", "variables", "switches"), chosen(WHOLE, FEW), ids=str)
def test_every_launch_is_recorded_in_order_and_can_be_computed_again(tmp_path: Path, model: str, variables: dict[str, str], switches: dict[str, int]) -> None:
    plain = train(tmp_path, model, "--steps", 2, variables=variables, trace=tmp_path / "plain", **switches)
    trace = tmp_path / "trace"
    recorded = train(tmp_path, model, "--steps", 2, probe=record("npu"), variables=variables, trace=trace, **switches)
    assert recorded.result == plain.result, recorded.stderr
    said = re.search(r"^probe: runtime: recording on \S+; operators found so far: (\d+), parameters known for (\d+); \d+ MiB", recorded.stderr, re.MULTILINE)
    assert said and int(said[1]) >= int(said[2]) > 0, recorded.stderr
    launches = runtime_dump.read(tmp_path / "npu", 1)
    # The second step is the end of the device's list, but for what reads the losses and weights after it.
    names, everything = [launch.operator for launch in launches], trace.read_text().split()
    assert everything == (tmp_path / "plain").read_text().split()
    found = [start for start in range(len(everything) - len(names) + 1) if everything[start : start + len(names)] == names]
    assert len(names) > 50 and found, (len(names), recorded.stderr)
    # Nothing is left out at either end of the step: it holds what a step holds.
    assert names == one_step(everything, names), (names[:5], names[-5:])
    outcome = {launch.name: runtime_dump.check(launch) for launch in launches}
    wrong = [text for text in outcome.values() if text]
    again = [text for text in outcome.values() if text == ""]
    assert not wrong, wrong
    assert len(again) >= len(names) // 2, sorted({launch.operator for launch in launches if outcome[launch.name] is None})
    assert "NOT RECORDED" not in recorded.stderr and "could not" not in recorded.stderr and "inferred from what changed" not in recorded.stderr, recorded.stderr


def one_step(everything: list[str], names: list[str]) -> list[str]:
    """Returns the launches from the first of the second iteration, which is the first of all again, to the end of the program."""
    first = names[0]
    start = [place for place, name in enumerate(everything) if name == first and everything[place : place + 8] == names[:8]][-1]
    return everything[start : start + len(names)]


@pytest.mark.parametrize("model", chosen(["gpt", "resnet", "llama", "checkpointed"], ["gpt"]))
def test_operators_that_another_thread_plans_are_given_to_the_same_ops_of_torch(tmp_path: Path, model: str) -> None:
    found = []
    for queue in ("1", "2"):
        done = train(tmp_path, model, "--steps", 2, probe=record(queue, task="statistics"), variables={"TASK_QUEUE_ENABLE": queue})
        found.append((done.result, [(launch.name, launch.scope, launch.note) for launch in without_values(tmp_path / queue)]))
    assert found[0] == found[1]
    assert sum(note.startswith("in ") for _, _, note in found[1][1]) > 50, found[1][1][:20]


@pytest.mark.parametrize("task", chosen(["sketch", "statistics", "hash"], ["sketch"]))
def test_two_sound_runs_agree_and_a_fault_is_named_below_and_above(tmp_path: Path, compare: Compare, task: str) -> None:
    for name, fault in (("good", None), ("again", None), ("bad", "GeluV2:3:scale")):
        done = train(tmp_path, "gpt", "--steps", 2, probe=record(name, task=task), fault=fault)
        assert done.code == 0 and done.faults == (fault is not None), done.stderr
    code, report = compare(tmp_path / "good", tmp_path / "again")
    assert (code, report["culprits"]) == (0, []), report["culprits"]
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["op"], first["caller"]) == (1, "Aclnn.GeluV2.1.forward", "Functional.gelu.1.forward"), first
    assert first["module"] == "blocks.1"


FAULTS = {
    "Embedding:0": "Aten.embedding.0.forward", "LayerNorm:1": "Aten.native_layer_norm.1.forward", "Addmm:1": "Aten.addmm.1.forward", "Matmul:0": None,
    "InplaceMaskedFillScalar:0": None, "Softmax:1": "Aten._softmax.1.forward", "GeluV2:1": "Aten.gelu.1.forward", "NLLLoss:0": "Aten.nll_loss_forward.0.forward",
    "LogSoftmax:0": "Aten._log_softmax.0.forward", "GeluBackwardV2:0": "Aten.gelu_backward.0.backward", "LayerNormBackward:0": "Aten.native_layer_norm_backward.0.backward",
    "SoftmaxBackward:0": "Aten._softmax_backward_data.0.backward",
}  # fmt: skip
KINDS = ["scale", "row", "tail", "nan"]
MATRIX = [(place, kind) for place in FAULTS for kind in KINDS]


@pytest.mark.parametrize(("place", "kind"), chosen(MATRIX, [("SoftmaxBackward:0", "row"), ("Addmm:1", "nan")]))
def test_a_fault_of_an_operator_is_named(tmp_path: Path, compare: Compare, place: str, kind: str) -> None:
    # With ops of the dispatcher beside them, which are those of the backward pass as well.
    for name, fault in (("good", None), ("bad", f"{place}:{kind}")):
        done = train(tmp_path, "gpt", "--steps", 1, probe=record(name, "--level", "op", steps="0", task="sketch"), fault=fault)
        assert done.code == 0 and done.faults == (fault is not None), done.stderr
    code, report = compare(tmp_path / "good" / "runtime", tmp_path / "bad" / "runtime")
    operator, _, number = place.partition(":")
    first = report["first_divergence"]
    assert (code, first["op"]) == (1, f"Aclnn.{operator}.{number}.forward"), first
    caller = FAULTS[place]
    assert first["caller"] == caller if caller else first["caller"].startswith("Aten."), first


def test_beside_ops_of_torch_what_runs_in_them_is_named(tmp_path: Path, compare: Compare) -> None:
    plain = train(tmp_path, "gpt", "--steps", 1)
    both = record("npu", "--level", "mix", steps="0", task="sketch")
    recorded = train(tmp_path, "gpt", "--steps", 1, probe=both, fault="GeluV2:1:scale")
    assert recorded.code == 0 and len(recorded.result["losses"]) == len(plain.result["losses"])
    assert simulator.run(tmp_path, TRAIN, "gpt", "--steps", 1, probe=["--steps", "0", "--level", "mix", "-o", "cpu"]).code == 0
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    first = report["first_divergence"]
    assert (code, first["op"], first["below"]) == (1, "Functional.gelu.1.forward", ["Aclnn.GeluV2.1.forward"]), first
    text = (tmp_path / "report-cpu-npu" / "report.txt")
    assert not text.exists() or "in it" in text.read_text()


@pytest.mark.parametrize(("fault", "op"), chosen([("GeluBackwardV2:0:row", "Functional.gelu.1.backward"), ("LayerNormBackward:1:row", "Functional.layer_norm.3.backward")], [("GeluBackwardV2:0:row", "Functional.gelu.1.backward")]))
def test_an_operator_of_the_backward_pass_is_known_by_what_it_made(tmp_path: Path, compare: Compare, fault: str, op: str) -> None:
    # At this level nothing says which op of torch it ran in.
    for name, injected in (("good", None), ("bad", fault)):
        done = train(tmp_path, "gpt", "--steps", 1, probe=record(name, "--level", "mix", steps="0", task="sketch"), fault=injected)
        assert done.code == 0 and done.faults == (injected is not None), done.stderr
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    first = report["first_divergence"]
    operator, number, _ = fault.split(":")
    assert (code, first["op"], first["below"]) == (1, op, [f"Aclnn.{operator}.{number}.forward"]), first


def test_operators_are_chosen_by_name_and_tensors_by_size(tmp_path: Path) -> None:
    done = train(tmp_path, "gpt", "--steps", 2, probe=record("npu", "--include", "aclnnGelu*", "--exclude", "GeluBackwardV2", "--max-tensor", "4KB", task="sketch"))
    rows = [(launch.name, launch.note) for launch in without_values(tmp_path / "npu")]
    assert [name for name, _ in rows] == ["Aclnn.GeluV2.0.forward", "Aclnn.GeluV2.1.forward"], done.stderr
    assert "larger than the limit" in done.stderr


def without_values(dump: Path) -> list[runtime_dump.Launch]:
    table = runtime_dump.pyarrow.parquet.read_table(dump / "step1" / "rank0" / "ops.parquet").to_pylist()
    return [runtime_dump.Launch(*key) for key in dict.fromkeys((row["op"], row["scope"], row["note"] or "") for row in table)]


def test_a_ring_that_is_too_small_slows_the_training_and_changes_nothing(tmp_path: Path) -> None:
    plain = train(tmp_path, "gpt", "--steps", 2)
    recorded = train(tmp_path, "gpt", "--steps", 2, probe=record("npu", "--ring", "64KB", task="sketch"), latency=100)
    assert recorded.result == plain.result, recorded.stderr
    whole = train(tmp_path, "gpt", "--steps", 2, probe=record("whole", task="sketch"))
    names = [[launch.name for launch in without_values(tmp_path / name)] for name in ("npu", "whole")]
    # Tensors above half of the ring are listed without values; no launch is lost.
    assert names[0] == names[1] and "larger than the limit" in recorded.stderr and whole.code == 0


def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    plain = train(tmp_path, "gpt", "--steps", 2)
    # Files may not grow beyond this: what a full disk is to a program.
    limit = {"PROBE_TEST_FSIZE": "200000"}
    recorded = train(tmp_path, "gpt", "--steps", 2, probe=record("npu", steps="0-1"), variables=limit)
    assert recorded.result == plain.result, recorded.stderr
    said = [line for line in recorded.stderr.splitlines() if "recording has stopped" in line]
    assert len(said) == 1, recorded.stderr
    assert json.loads((tmp_path / "npu" / "manifest.json").read_text())["stopped"]


def test_what_a_killed_program_recorded_is_readable(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "probe", "capture", *map(str, record("npu", steps="0-50", task="sketch")), "--", sys.executable, TRAIN, "mlp", "--device", "npu:0", "--steps", "50"]
    program = subprocess.Popen(command, cwd=tmp_path, env=simulator.environment(latency=300), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while not (tmp_path / "npu" / "step2").exists() and program.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    done = subprocess.run([sys.executable, "-m", "probe", "inspect", "npu", "--step", "0-1", "--format", "json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    parts = json.loads(done.stdout)["parts"]
    assert [part["step"] for part in parts] == [0, 1] and all(part["op_count"] > 20 for part in parts), done.stderr


@pytest.mark.skipif(not EVERYTHING, reason="part of ./test.sh --all")
def test_two_devices(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", simulator.HERE / "ddp.py"]
    plain = simulator.run(tmp_path, *launcher, "npu", devices=2)
    recorded = simulator.run(tmp_path, *launcher, "npu", probe=record("npu", steps="0"), devices=2)
    assert recorded.result == plain.result, recorded.stderr
    names = [[launch.operator for launch in runtime_dump.read(tmp_path / "npu", 0, rank)] for rank in (0, 1)]
    assert names[0] == names[1] and len(names[0]) > 10


def test_the_doctor_tries_the_agent_and_leaves_a_report(tmp_path: Path) -> None:
    done = simulator.run(tmp_path, "-m", "probe", "doctor", "--runtime", latency=0)
    lines = done.stdout.splitlines()
    # How long a call takes is the machine's affair.
    assert all(line.startswith("ok ") for line in lines[:-1] if " cost:" not in line) and len(lines) == 11, done.stdout + done.stderr
    report = json.loads((tmp_path / "probe-runtime-report.json").read_text())
    assert report["checks"]["cache"][0] and str(tmp_path) not in json.dumps(report)
