"""CANN's own dumps, received in the process (`--runtime acl-dump`): from the simulated device, whose encoder is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runtime_dump
import simulator
import torch
from simulator import Done

TRAIN = simulator.HERE / "train.py"
Compare = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("agent")


def train(folder: Path, *probe: object, variables: dict[str, str] | None = None, **switches: Any) -> Done:
    return simulator.run(folder, TRAIN, "mlp", "--device", "npu:0", "--steps", 3, probe=probe or None, variables=variables, **switches)


def receive(folder: Path, output: str, *options: object, **given: Any) -> Done:
    return train(folder, "--runtime", "acl-dump", "-o", output, *(options or ("--steps", "1")), **given)


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    start = [os.environ["PROBE_BIN"]] if os.environ.get("PROBE_BIN") else [sys.executable, "-m", "probe"]
    return subprocess.run([*start, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False)


def verdicts(report: dict[str, Any]) -> set[str]:
    return {verdict for verdict, count in report["counts"]["verdicts"].items() if count}


def test_every_launch_is_dumped_with_the_bits_that_the_agent_records(tmp_path: Path) -> None:
    plain = train(tmp_path)
    dumped = receive(tmp_path, "kernels")
    recorded = train(tmp_path, "--runtime", "acl", "--steps", "1", "--task", "tensor", "-o", "launches")
    assert plain.result == dumped.result == recorded.result, dumped.stderr
    assert command(tmp_path, "convert", "kernels", "-o", "converted").returncode == 0
    kernels, launches = (runtime_dump.read(tmp_path / name, 1) for name in ("converted", "launches"))
    assert len(launches) > 20 and [kernel.operator for kernel in kernels] == [launch.operator for launch in launches]
    assert f"{len(kernels)} files of step 1 received from CANN in {tmp_path / 'kernels'}" in dumped.stderr
    for kernel, launch in zip(kernels, launches, strict=True):
        for mine, other in ((kernel.inputs, launch.inputs), (kernel.outputs, launch.outputs)):
            # Numbers are no tensors, and not in the dump.
            found, expected = runtime_dump.flat(mine), runtime_dump.flat(other)
            assert len(found) == len(expected), launch.name
            assert all(torch.equal(one, two) or bool((one.isnan() == two.isnan()).all()) for one, two in zip(found, expected, strict=True)), launch.name


def test_pieces_that_are_mixed_small_or_placed_make_the_same_dump_and_a_fault_is_named(tmp_path: Path, compare: Compare) -> None:
    receive(tmp_path, "good")
    for way in ("mixed", "placed"):
        done = receive(tmp_path, way, dump=f"{way},pieces=100")
        assert done.counts["dump"]["pieces"] > 3 * done.counts["dump"]["files"], done.counts["dump"]
        code, report = compare(tmp_path / "good", tmp_path / way)
        assert (code, verdicts(report)) == (0, {"bit-equal"}), report["counts"]
    assert receive(tmp_path, "bad", fault="Addmm:4:scale").faults == 1
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    assert (code, report["first_divergence"]["op"]) == (1, "Kernel.Addmm.1.forward"), report["first_divergence"]


def test_pieces_that_are_lost_or_lie_are_told_and_the_rest_is_there(tmp_path: Path, compare: Compare) -> None:
    receive(tmp_path, "good")
    done = receive(tmp_path, "bad", dump="lost=3,lying=7,pieces=500")
    assert done.result and len([line for line in done.said() if "never got their last piece" in line or "has fewer bytes than its header states" in line]) == 4, done.stderr
    code, report = compare(tmp_path / "good", tmp_path / "bad")
    assert (code, report["culprits"]) == (3, []), report["counts"]
    assert verdicts(report) <= {"bit-equal", "unreadable", "missing"}, report["counts"]
    assert report["counts"]["verdicts"]["bit-equal"] > 50


def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    plain = train(tmp_path)
    # Files may not grow beyond this: what a full disk is to a program.
    done = receive(tmp_path, "full", variables={"PROBE_TEST_FSIZE": "3000"})
    assert done.result == plain.result
    assert len([line for line in done.said() if line.startswith("probe: runtime: recording has stopped: cannot write")]) == 1, done.stderr
    shown = command(tmp_path, "inspect", "full")
    assert shown.returncode == 3 and "not all of this part was recorded: cannot write" in shown.stderr, shown.stderr
    assert not list((tmp_path / "full").rglob("*.part"))


def test_a_killed_program_leaves_whole_files_and_a_mark(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text("import os, signal, torch\nfrom torch import nn\ntorch.ones(3, device='npu:0') * 2\nx = nn.Linear(300, 300).to('npu:0')(torch.ones(300, 300, device='npu:0'))\ntorch.npu.synchronize()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = simulator.run(tmp_path, program, probe=["--runtime", "acl-dump", "--step-on", "aclnnNothing", "-o", "killed"], dump="mixed")
    assert done.code == -9
    shown = command(tmp_path, "inspect", "killed")
    assert shown.returncode == 3 and "was being received when the program ended" in shown.stderr and "Kernel." in shown.stdout, shown.stderr


def test_steps_end_with_an_operator_and_a_dump_is_not_written_over(tmp_path: Path) -> None:
    done = receive(tmp_path, "kernels", "--step-on", "aclnnEmbedding", "--steps", "0")
    assert done.result and "of step 0 received" in done.stderr, done.stderr
    again = receive(tmp_path, "kernels")
    assert again.code == 2 and "already holds a dump; record into another folder, such as" in again.stderr, again.stderr
    assert receive(tmp_path, "kernels", "--steps", "1-2", "--overwrite", "--include", "Addmm").result
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == ["step1", "step2"]
    assert {path.name.split(".")[0] for path in (tmp_path / "kernels").rglob("*.*")} == {"Addmm"}
    refused = receive(tmp_path, "other", "--task", "statistics")
    assert refused.code == 2 and "CANN dumps only whole tensors" in refused.stderr, refused.stderr


def test_a_program_that_dumps_by_itself_keeps_its_dump(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(
        "import json, torch, torch_npu\nopen('acl.json', 'w').write(json.dumps({'dump': {'dump_list': [], 'dump_path': 'own', 'dump_mode': 'all', 'dump_op_switch': 'on'}}))\n"
        "x = torch.ones(3, device='npu:0')\ntorch_npu.npu.init_dump()\ntorch_npu.npu.set_dump('acl.json')\nfor _ in range(2): x = x + x\ntorch.npu.synchronize()\n"
        "torch_npu.npu.finalize_dump()\nprint(x.cpu().tolist())\n"
    )
    (tmp_path / "own").mkdir()
    done = simulator.run(tmp_path, program, probe=["--runtime", "acl-dump", "--step-on", "aclnnAdd", "--steps", "1-9", "-o", "kernels"])
    assert done.result == [4.0, 4.0, 4.0]
    assert "aclmdlInitDump returns" in done.stderr and "does the program dump by itself" in done.stderr, done.stderr
    shown = command(tmp_path, "inspect", "own")
    assert shown.returncode == 0 and shown.stdout.count("Kernel.Add.") == 2, shown.stdout
