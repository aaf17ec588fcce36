"""Every key of the older tool's files, in its own form: a training that reads such a file, and what its dump then holds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dumps import Dump, Op, steps
from probe import ApiProfiler, PrecisionDebugger, SettingsError
from probe.dropin import config_json

CONV, LINEAR = "Functional.conv2d.0.forward", "Functional.linear.0.forward"
STEPS = 3


class Net(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.relu, self.fc = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(F.max_pool2d(self.relu(self.conv1(x)), 2), 1))


def train(recorder: Any, end: Callable[[], None], seed: int = 0, infinite: bool = False, **start: Any) -> torch.Tensor:
    """Takes some steps; returns the first weights. `infinite`: all losses but the first are."""
    torch.manual_seed(seed)
    model = Net()
    first = model.conv1.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(STEPS):
        recorder.start(model, **start)
        loss = F.cross_entropy(model(torch.randn(8, 1, 6, 6)), torch.arange(8) % 4)
        if infinite and number:
            loss = loss + torch.log(torch.zeros(1)).sum()
        if isinstance(recorder, PrecisionDebugger):
            recorder.save(loss, "loss")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        recorder.stop()
        end()
    return first


@dataclass
class Ran:
    """A recorded training."""

    folder: Path
    weight: torch.Tensor
    #: Text on standard error.
    said: str

    def step(self, number: int = 0) -> Dump:
        return Dump(self.folder / "dump_path", number)

    @property
    def steps(self) -> list[int]:
        return steps(self.folder / "dump_path")

    def __getitem__(self, op: str) -> Op:
        return self.step(self.steps[0])[op]

    @property
    def names(self) -> list[str]:
        return self.step(self.steps[0]).names


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    PrecisionDebugger.forget()
    ApiProfiler.forget()


def run(folder: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str], **training: Any) -> Ran:
    """Trains with this config file, in this folder."""
    (folder / "config.json").write_text(json.dumps({"dump_path": str(folder / "dump_path"), **values}))
    debugger = PrecisionDebugger(config_path=str(folder / "config.json"))
    weight = train(debugger, debugger.step, **training)
    PrecisionDebugger.forget()
    return Ran(folder, weight, capsys.readouterr().err)


def has_data(op: Op) -> bool:
    return any(slot.row["offset"] is not None or slot.row["data"] is not None for slot in op.slots.values())


def is_default(ran: Ran) -> bool:
    """Returns true if the record is that of a file that says nothing."""
    functions = {CONV, "Functional.conv2d.0.backward", "Functional.relu.0.forward", LINEAR, "Torch.flatten.0.forward", "Module.fc.Linear.parameters_grad.0"}
    numbers = ran[CONV]["output.0"].norm is not None and not has_data(ran[CONV])
    return ran.steps == list(range(STEPS)) and functions <= set(ran.names) and "Module.fc.Linear.forward.0" not in ran.names and numbers


@dataclass
class Case:
    """A file, how the training goes, and what must hold of the dump."""

    values: dict[str, Any]
    holds: Callable[[Ran], bool]
    #: Part of what is said.
    says: str = ""
    training: dict[str, Any] | None = None


def only(*names: str) -> Callable[[Ran], bool]:
    return lambda ran: sorted(ran.names) == sorted(names)


#: Cases of one task each: the key is the name of the case, up to a blank.
CASES = {
    "task statistics": Case({"task": "statistics", "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}}, is_default),
    "task tensor": Case({"task": "tensor"}, lambda ran: torch.equal(ran[CONV]["input.1"].data, ran.weight) and "Functional.conv2d.0.backward" in ran.names),
    "task structure": Case(
        {"task": "structure", "level": "L1"}, lambda ran: ran[CONV].scope == "Module.conv1.Conv2d.forward.0" and ran[CONV].scope in ran.names, "together with statistics"
    ),
    "acc_check": Case({"task": "acc_check"}, lambda ran: has_data(ran[CONV]) and has_data(ran[LINEAR]), "probe check-ops"),
    "nan_check": Case({"task": "nan_check"}, lambda ran: ran.steps == [1], "Torch.log.0.forward output.0: 1 Inf", {"infinite": True}),
    "overflow_check": Case({"task": "overflow_check"}, lambda ran: ran.steps == [1], "the first in which a NaN or an infinity", {"infinite": True}),
    "overflow_nums": Case({"task": "nan_check", "nan_check": {"overflow_nums": -1}}, lambda ran: ran.steps == [1, 2], "NaN or infinity of step 2", {"infinite": True}),
    "free_benchmark": Case(
        {"task": "free_benchmark", "free_benchmark": {"fuzz_device": "npu", "pert_mode": "improve_precision", "handler_type": "check", "fuzz_level": "L1",
                                                      "fuzz_stage": "forward", "if_preheat": False, "preheat_step": 15, "max_sample": 20}},
        lambda ran: 0 < (ran[CONV]["input.1"].data - ran.weight).abs().max() < 1e-7, "--noise",
    ),
    "dump_path": Case({}, is_default),
    "step": Case({"step": [0, "2"]}, lambda ran: ran.steps == [0, 2]),
    "rank": Case({"rank": ["0-1"]}, is_default),
    "rank of others": Case({"rank": [1]}, lambda ran: not ran.steps, "this single process is rank 0, and ranks 1 were to record"),
    "level L0": Case({"level": "L0"}, lambda ran: "Module.fc.Linear.forward.0" in ran.names and CONV not in ran.names),
    "level L1": Case({"level": "L1"}, is_default),
    "level mix": Case({"level": "mix"}, lambda ran: {"Module.fc.Linear.parameters_grad.0", CONV} <= set(ran.names)),
    "level debug": Case({"level": "debug"}, only("loss.0.debug", "loss_grad.0.debug")),
    "level op": Case({"level": "op"}, lambda ran: "Aten.convolution.0.forward" in ran.names),
    "extra_info": Case({"extra_info": False}, lambda ran: is_default(ran) and not ran[CONV].stack),
    "async_dump": Case({"async_dump": True}, is_default, "async_dump: not needed"),
    "precision": Case({"precision": "high"}, is_default, "precision: not needed"),
    "risk_level": Case({"risk_level": "CORE"}, is_default, "risk_level: ignored, every function is recorded"),
    "custom_op_namespaces": Case({"custom_op_namespaces": ["_C_ascend"]}, is_default, "custom_op_namespaces: not needed"),
    "dump_enable": Case({"dump_enable": False}, lambda ran: not ran.steps, "dump_enable is false"),
    "scope": Case({"statistics": {"scope": ["Torch.flatten.0.forward", LINEAR]}}, only("Torch.flatten.0.forward", LINEAR)),
    "list": Case({"statistics": {"list": ["linear"]}}, only(LINEAR, "Functional.linear.0.backward")),
    "list of a module": Case({"level": "mix", "statistics": {"list": ["Module.conv1.Conv2d.forward.0"]}}, lambda ran: CONV in ran.names and LINEAR not in ran.names),
    "data_mode": Case({"statistics": {"list": ["linear"], "data_mode": ["forward", "output"]}}, lambda ran: ran.names == [LINEAR] and list(ran[LINEAR].slots) == ["output.0"]),
    "data_mode backward": Case({"statistics": {"list": ["linear"], "data_mode": ["backward"]}}, only("Functional.linear.0.backward")),
    "summary_mode": Case({"statistics": {"summary_mode": "md5"}}, lambda ran: ran[CONV]["input.1"].hash is not None and not has_data(ran[CONV]), "128-bit hash"),
    "tensor_list": Case({"statistics": {"tensor_list": ["conv2d"]}}, lambda ran: torch.equal(ran[CONV]["input.1"].data, ran.weight) and not has_data(ran[LINEAR])),
    "slice": Case(
        {"statistics": {"slice": [{"dim": 0, "size": 8, "begin": 0, "end": 2}]}},
        lambda ran: (ran[CONV]["input.0"].shape, ran[CONV]["input.1"].shape) == ((2, 1, 6, 6), (4, 1, 3, 3)),
    ),
    "request_id": Case(
        {"task": "tensor", "tensor": {"request_id": "b"}}, lambda ran: ran[CONV]["input.0"].shape == (5, 1, 6, 6), "", {"scheduled_tokens": {"a": 3, "b": 5}}
    ),
    "white_list": Case({"task": "acc_check", "acc_check": {"white_list": ["conv2d"]}}, only(CONV, "Functional.conv2d.0.backward"), "check-ops"),
    "black_list": Case({"task": "acc_check", "acc_check": {"black_list": ["conv2d"]}}, lambda ran: LINEAR in ran.names and CONV not in ran.names, "check-ops"),
    "error_data_path": Case({"task": "acc_check", "acc_check": {"error_data_path": "./"}}, lambda ran: has_data(ran[CONV]), "error_data_path: not needed"),
    "file_format": Case({"statistics": {"file_format": "npy"}}, is_default, "file_format: ignored, it belongs to MindSpore"),
    "check_mode": Case({"statistics": {"check_mode": "all"}}, is_default, "check_mode: ignored, it belongs to MindSpore"),
}


@pytest.mark.parametrize("key", CASES)
def test_a_key_does_what_the_guide_says(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[key]
    ran = run(tmp_path, case.values, capsys, **(case.training or {}))
    assert case.holds(ran), (ran.steps, ran.said, ran.names if ran.steps else None)
    assert case.says in ran.said and ("warning" not in ran.said or case.says), ran.said


#: Why each cannot be had, and what to use.
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "run_ut": ({"task": "run_ut", "run_ut": {"white_list": []}}, "records nothing of a training", "'acc_check' and run 'probe check-ops'"),
    "diff_check": ({"task": "diff_check", "diff_check": {"diff_nums": 1}}, "compares checksums with an earlier dump", "'hash' in both runs and run 'probe compare'"),
    "grad_probe": ({"task": "grad_probe", "grad_probe": {"grad_level": "L1"}}, "files of another form", "level 'L0'"),
    "level L2": ({"level": "L2", "task": "tensor"}, "only from the start of the program", "probe capture --runtime acl -o DIR -- python SCRIPT"),
    "bench_path": ({"task": "tensor", "tensor": {"summary_mode": "md5", "bench_path": "./x"}}, "checksums of an earlier dump", "task 'hash' in both runs"),
    "diff_nums": ({"task": "tensor", "tensor": {"diff_nums": 1}}, "checksums of an earlier dump", "task 'hash' in both runs"),
    "load.step": ({"load": {"path": "x", "modules": ["fc"], "step": 1}}, "difference between the two", "leave it out"),
    "load.rank": ({"load": {"path": "x", "modules": ["fc"], "rank": 1}}, "difference between the two", "leave it out"),
    "white_list elsewhere": ({"statistics": {"white_list": ["conv2d"]}}, "belongs to task 'acc_check'", "use 'list'"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_refused_key_says_why_and_what_to_use(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, why, instead = REFUSED[key]
    with pytest.raises(SettingsError) as error:
        run(tmp_path, values, capsys)
    text = str(error.value)
    assert text.startswith(str(tmp_path / "config.json")) and why in text and instead in text and "\n" not in text, text
    assert not (tmp_path / "dump_path").exists()


def test_every_known_key_is_walked() -> None:
    def keys(values: Any) -> set[str]:
        return {key for name, value in values.items() for key in {name, *keys(value)}} if isinstance(values, dict) else set()

    walked = keys({name: case.values for name, case in CASES.items()}) | keys({name: values for name, (values, *_) in REFUSED.items()})
    # These two have tests of their own.
    walked |= {"exception_dump", "dump_after_load"}
    known = {*config_json._COMMON, *config_json._BLOCK, *config_json._CHOICES, *config_json._TASKS_MAPPED, *config_json._TASKS_REFUSED}
    # Not the older tool's.
    assert known - walked == {"quiet", "step_on"}


def test_dump_enable_is_looked_at_while_the_training_runs(tmp_path: Path) -> None:
    path = tmp_path / "config.json"

    def write(on: bool) -> None:
        path.write_text(json.dumps({"task": "statistics", "dump_path": str(tmp_path / "dump_path"), "dump_enable": on}))

    write(False)
    debugger = PrecisionDebugger(config_path=str(path))
    states = iter([True, False, False])

    def end() -> None:
        write(next(states))
        debugger.step()

    train(debugger, end)
    PrecisionDebugger.forget()
    assert steps(tmp_path / "dump_path") == [1]


def test_loaded_modules_read_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = run(tmp_path / "first", {"task": "tensor", "level": "L0", "step": [0]}, capsys)
    load = {"path": str(first.folder / "dump_path"), "modules": ["Module.fc.Linear.forward.0"], "dump_after_load": False}
    second = run(tmp_path / "second", {"task": "tensor", "level": "L0", "step": [0], "load": load}, capsys, seed=1)
    linear, conv = "Module.fc.Linear.forward.0", "Module.conv1.Conv2d.forward.0"
    assert torch.equal(first[linear]["input.0"].data, second[linear]["input.0"].data)
    assert not torch.equal(first[conv]["input.0"].data, second[conv]["input.0"].data)
    assert "dump_after_load: ignored" in second.said


def test_exception_dump_keeps_the_step_that_an_exception_ends(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "exception_dump", "dump_path": "./dump_path", "exception_dump": {"list": []}}))
    (tmp_path / "train.py").write_text(
        "import torch\nfrom probe import PrecisionDebugger\ndebugger = PrecisionDebugger('config.json')\nmodel = torch.nn.Linear(2, 2)\n"
        "for number in range(3):\n    debugger.start(model)\n    model(torch.ones(1, 2 + number // 2))\n    debugger.stop()\n    debugger.step()\n"
    )
    done = subprocess.run([fork_server.python(), "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the program ended in step 2, in Functional.linear.0.forward" in done.stderr, done.stderr
    assert steps(tmp_path / "dump_path") == [2]


def test_single_calls_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, {"task": "statistics", "level": "L0"}, capsys, token_range=[1, 2])
    assert not ran.steps, "each start is followed by one call, number 0"
    capsys.readouterr()
    ran = run(tmp_path, {"task": "statistics", "level": "L0"}, capsys, token_range=[0, 0])
    assert ran.steps == [0, 1, 2]


#: Keys of the oldest form.
OLDEST = {
    "dump_mode": ({"dump_mode": "module"}, [], lambda names: "Module.fc.Linear.forward.0" in names and CONV not in names),
    "dump_mode api": ({"dump_mode": "api"}, [], lambda names: CONV in names and "Module.fc.Linear.forward.0" not in names),
    "dump_iter": ({"dump_mode": "api"}, [], lambda names: CONV in names),
    "api_list": ({"dump_mode": "api"}, [{"name": "torch.nn.functional.linear"}], lambda names: sorted(names) == ["Functional.linear.0.backward", LINEAR]),
    "api_type": (
        {"dump_mode": "api"},
        [{"name": "torch.nn.functional.linear", "api_type": "forward"}, {"name": "my_model.conv1", "api_type": "backward"}],
        lambda names: LINEAR in names and "Functional.linear.0.backward" not in names and "Module.conv1.Conv2d.backward.0" in names and CONV not in names,
    ),
}


@pytest.mark.parametrize("key", OLDEST)
def test_a_key_of_the_oldest_form_does_what_the_guide_says(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common, listed, holds = OLDEST[key]
    settings = {**common, "dump_path": str(tmp_path / "out"), "dump_iter": "0|2"}
    (tmp_path / "msprobe.json").write_text(json.dumps({"dump": {"common_dump_settings": settings, "api_list": listed}}))
    monkeypatch.setenv("MSPROBE_PATH", str(tmp_path / "msprobe.json"))
    profiler = ApiProfiler()
    train(profiler, profiler.save)
    ApiProfiler.forget()
    assert steps(tmp_path / "out") == [0, 2]
    names = Dump(tmp_path / "out").names
    assert holds(names), names
