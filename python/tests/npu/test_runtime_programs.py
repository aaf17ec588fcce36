"""Programs without Python on the simulated device: linked to CANN's libraries, or looking functions up; steps that end with an operator; older operators."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import runtime_dump
import simulator
import torch
from extent import chosen

SOURCE = simulator.HERE / "linked.cpp"
COMPILER = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
#: Output of the program, computed here: each step is `a = relu(((a * b) + a) * b)`, with `b` fixed.
FIRST, FACTOR = torch.tensor([1.0, 2.0, 3.0, -4.0]), torch.tensor([0.5, 0.25, 2.0, 1.0])

pytestmark = pytest.mark.usefixtures("agent")


def torch_libraries() -> str:
    spec = importlib.util.find_spec("torch")
    assert spec and spec.submodule_search_locations
    return str(Path(next(iter(spec.submodule_search_locations))) / "lib")


def build(folder: Path, name: str, *options: str) -> Path:
    libraries = [f"-L{simulator.FOLDER / 'lib'}", "-Wl,--no-as-needed", "-lopapi", "-lascendcl", "-ldl", "-Wl,--allow-shlib-undefined", f"-Wl,-rpath-link,{torch_libraries()}"]
    subprocess.run([COMPILER or "", "-std=c++17", "-O1", *options, "-o", folder / name, SOURCE, *libraries], check=True)
    return folder / name


def run(folder: Path, *command: object, probe: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    surroundings = simulator.environment()
    surroundings["LD_LIBRARY_PATH"] += os.pathsep + torch_libraries()
    capture = [*([os.environ["PROBE_BIN"]] if os.environ.get("PROBE_BIN") else [sys.executable, "-m", "probe"]), "capture", *(probe or []), "--"] if probe else []
    return subprocess.run([*capture, *map(str, command)], cwd=folder, env=surroundings, capture_output=True, text=True, check=False)


def expected() -> list[list[torch.Tensor]]:
    """For each step, what its four operators write."""
    steps, a = [], FIRST
    for _ in range(3):
        product = a * FACTOR
        total = a + product
        again = total * FACTOR
        a = again.clamp(min=0)
        steps.append([product, total, again, a])
    return steps


@pytest.mark.parametrize(
    ("how", "options"),
    [("linked", ("-Wl,-z,now",)), ("linked lazily", ("-Wl,-z,lazy", "-no-pie")), ("linked without a table of calls", ("-fno-plt",)), ("by name", ("-DBY_NAME",)), ("linked and loaded late", ("-DBY_NAME",))],
)
def test_launches_are_recorded_however_the_program_comes_by_its_functions(tmp_path: Path, how: str, options: tuple[str, ...]) -> None:
    command: list[object] = [build(tmp_path, "program", *options)]
    if how.endswith("late"):
        command.append(build(tmp_path, "plugin.so", "-DPLUGIN", "-shared", "-fPIC"))
    plain = run(tmp_path, *command)
    done = run(tmp_path, *command, probe=["--runtime", "acl", "--steps", "0-2", "--task", "tensor", "--step-on", "aclnnRelu", "-o", "dump"])
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout), done.stderr
    for step, results in enumerate(expected()):
        launches = runtime_dump.read(tmp_path / "dump", step)
        assert [launch.name for launch in launches] == ["Aclnn.Mul.0.forward", "Aclnn.Add.0.forward", "Aclop.Mul.0.forward", "Aclnn.Relu.0.forward"], done.stderr
        for launch, result in zip(launches, results, strict=True):
            assert torch.equal(launch.outputs[0], result), (step, launch)
    assert "not seen" not in done.stderr and "could not" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("end", "steps", "names"),
    [
        # Steps before the recorded one are counted all the same, and so is an operator that is left out.
        ("aclnnRelu", "2", ["Aclnn.Mul", "Aclnn.Add", "Aclop.Mul"]),
        ("aclnnMul", "2", ["Aclnn.Add", "Aclop.Mul", "Aclnn.Mul"]),
        ("aclopMul", "2", ["Aclnn.Mul", "Aclnn.Add", "Aclop.Mul"]),
    ],
)
def test_a_launch_ends_a_step(tmp_path: Path, end: str, steps: str, names: list[str]) -> None:
    done = run(tmp_path, build(tmp_path, "program"), probe=["--runtime", "acl", "--steps", steps, "--task", "tensor", "--step-on", end, "--exclude", "Relu", "-o", "dump"])
    assert done.returncode == 0, done.stderr
    assert [step.name for step in (tmp_path / "dump").glob("step*")] == [f"step{steps}"], done.stderr
    launches = runtime_dump.read(tmp_path / "dump", int(steps))
    assert [launch.name.removesuffix(".0.forward") for launch in launches] == names
    # By value: the product of the third step, also where the step began with the last launch of the second.
    first = {"aclnnRelu": expected()[2][0], "aclnnMul": expected()[1][1], "aclopMul": expected()[2][0]}[end]
    assert torch.equal(launches[0].outputs[0], first)


def test_what_comes_after_the_end_of_cann_is_told_of(tmp_path: Path) -> None:
    program = build(tmp_path, "program", "-DAGAIN")
    plain = run(tmp_path, program)
    for output, steps, told in (("whole", "0-5", True), ("part", "0-2", False)):
        done = run(tmp_path, program, probe=["--runtime", "acl", "--steps", steps, "--step-on", "aclnnRelu", "-o", output])
        assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
        assert done.stderr.count("initialises CANN again after aclFinalize") == told, done.stderr
        assert sorted(step.name for step in (tmp_path / output).glob("step*")) == ["step0", "step1", "step2"], done.stderr


@pytest.mark.parametrize("queue", chosen(["1", "2"], ["1"]))
def test_in_a_python_program_a_launch_ends_a_step_too(tmp_path: Path, queue: str) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\nx = torch.ones(3, device='npu:0')\nfor step in range(6):\n    x = torch.relu((x + step) * 2)\nprint(x.cpu().tolist())\n")
    # Launches take so long that the queue of torch_npu has planned all steps before the first of them ends.
    done = simulator.run(
        tmp_path, program, probe=["--runtime", "acl", "--steps", "2,4", "--task", "tensor", "--step-on", "aclnnRelu", "-o", "dump"], variables={"TASK_QUEUE_ENABLE": queue}, launch=4000
    )
    assert done.result == [178.0] * 3, done.stderr
    for step, values in ((2, [8.0, 16.0, 16.0]), (4, [42.0, 84.0, 84.0])):
        launches = runtime_dump.read(tmp_path / "dump", step)
        assert [launch.operator for launch in launches] == ["Adds", "Muls", "Relu"], done.stderr
        assert [launch.outputs[0][0].item() for launch in launches] == values
    assert "without values" not in done.stderr, done.stderr
    refused = simulator.run(tmp_path, program, probe=["--runtime", "acl", "--level", "op", "--step-on", "aclnnRelu", "-o", "other"])
    assert refused.code == 2 and "leave one out" in refused.stderr, refused.stderr
