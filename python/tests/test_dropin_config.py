"""The older tool's files: each key mapped, or refused or warned of by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probe.dropin import read
from probe.patterns import PHASES, Pattern
from probe.selection import Selection
from probe.settings import Settings, SettingsError, Slice
from probe.steps import Steps

#: The oldest form, as its users write it.
OLDEST = {
    "dump": {
        "common_dump_settings": {"dump_mode": "api", "dump_path": "./out", "dump_iter": "10|20"},
        "api_list": [
            {"name": "torch.nn.functional.conv2d", "api_type": "forward"},
            {"name": "my_model.layer1.0.conv1", "api_type": "backward"},
        ],
    }
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    monkeypatch.chdir(tmp_path)

    def make(values: Any, **arguments: Any) -> Settings:
        path = tmp_path / "config.json"
        path.write_text(values if isinstance(values, str) else json.dumps(values))
        return read(path, **arguments)

    return make


Config = Callable[..., Settings]


def test_the_file_that_comes_with_the_older_tool(config: Config, tmp_path: Path, said: Callable[[], str]) -> None:
    settings = config(
        {
            "task": "statistics",
            "dump_path": "./dump_path",
            "rank": [],
            "step": [],
            "level": "L1",
            "extra_info": True,
            "async_dump": False,
            "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
            "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
            "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
        }
    )
    expected = Settings.from_arguments(output=str(tmp_path / "dump_path"), task="statistics", level="api", stacks=True)
    assert settings == expected.with_source(str(tmp_path / "config.json")) and said() == ""
    assert config({"task": "statistics"}) == settings and config({}) == settings


@pytest.mark.parametrize(
    ("values", "key", "value"),
    [
        ({"task": "tensor"}, "task", "tensor"),
        ({"task": "sketch"}, "task", "sketch"),
        ({"task": "hash"}, "task", "hash"),
        ({"task": "statistics", "statistics": {"summary_mode": "md5"}}, "task", "hash"),
        ({"task": "statistics", "statistics": {"summary_mode": "xor"}}, "task", "hash"),
        ({"task": "tensor", "tensor": {"summary_mode": "md5"}}, "task", "tensor"),
        ({"task": "structure"}, "task", "statistics"),
        ({"task": "structure", "level": "L1"}, "level", "mix"),
        ({"task": "structure", "level": "L0"}, "level", "module"),
        ({"task": "nan_check"}, "task", "statistics"),
        ({"task": "nan_check"}, "keep", "non-finite"),
        ({"task": "overflow_check"}, "keep", "non-finite"),
        ({"task": "exception_dump"}, "keep", "exception"),
        ({"task": "statistics"}, "keep", "all"),
        ({"task": "overflow_check"}, "keep_steps", 1),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 3}}, "keep_steps", 3),
        ({"task": "nan_check", "nan_check": {"overflow_nums": -1}}, "keep_steps", None),
        ({"task": "exception_dump", "exception_dump": {"list": ["relu"]}}, "include", (Pattern("relu", inside=True),)),
        ({"task": "free_benchmark", "free_benchmark": {"if_preheat": False, "list": []}}, "perturb", 0),
        ({"level": "L0"}, "level", "module"),
        ({"level": "L1"}, "level", "api"),
        ({"level": "mix"}, "level", "mix"),
        ({"level": "debug"}, "level", "save"),
        ({"level": "op"}, "level", "op"),
        ({"step": [1, "3-5"]}, "steps", Steps.parse("1,3-5")),
        ({"step": ["3"]}, "steps", Steps.parse(3)),
        ({"step": "3-5"}, "steps", Steps.parse("3-5")),
        ({"step": 3}, "steps", Steps.parse(3)),
        ({"rank": [0, "2-3"]}, "ranks", Steps.parse("0,2-3")),
        ({"extra_info": False}, "stacks", False),
        ({"quiet": True}, "quiet", True),
        ({"step_on": "model"}, "step_on", "model"),
        ({"statistics": {"data_mode": ["forward"]}}, "phases", ("forward",)),
        ({"statistics": {"data_mode": ["backward"]}}, "phases", ("backward", "gradients")),
        ({"statistics": {"data_mode": ["forward", "backward"]}}, "phases", PHASES),
        ({"statistics": {"data_mode": ["input"]}}, "slots", ("input",)),
        ({"statistics": {"data_mode": ["forward", "output"]}}, "slots", ("output",)),
        ({"statistics": {"data_mode": ["input"]}}, "phases", PHASES),
        ({"statistics": {"list": ["conv2d"]}}, "include", (Pattern("conv2d", inside=True),)),
        ({"statistics": {"slice": [{"dim": 0, "size": 16, "begin": 1, "end": 4}]}}, "slices", (Slice(0, 16, 1, 4),)),
        ({"statistics": {"request_id": "chat-7"}}, "request", "chat-7"),
        ({"statistics": {"tensor_list": ["conv2d"]}}, "tensors", (Pattern("conv2d", inside=True),)),
        (
            {"statistics": {"scope": ["Torch.a.0.forward", "Tensor.b.1.backward"]}},
            "scope",
            ("Torch.a.0.forward", "Tensor.b.1.backward"),
        ),
    ],
)
def test_each_key_is_mapped(config: Config, values: dict[str, Any], key: str, value: object) -> None:
    assert getattr(config(values), key) == value


def test_a_block_counts_only_for_its_task(config: Config) -> None:
    values = {"task": "tensor", "tensor": {"list": ["relu"]}, "statistics": {"list": ["conv2d"]}}
    assert config(values).include == (Pattern("relu", inside=True),)


def test_a_list_selects_as_the_older_tool_did(config: Config) -> None:
    selection = Selection(config({"level": "mix", "statistics": {"list": ["linear", "Module.layer1.0.Block.forward.0"]}}))
    assert selection.wants("Functional.linear.2.forward", "fc") and not selection.wants("Torch.relu.0.forward", "fc")
    assert selection.wants("Torch.relu.0.forward", "layer1.0.act"), "a module's call opens everything inside it"


def test_lists_take_torch_names_and_paths_with_the_models_variable(config: Config) -> None:
    selection = Selection(config({"level": "mix", "statistics": {"list": ["torch.nn.functional.conv2d", "my_model.layer1.0.conv1"]}}))
    assert selection.wants("Functional.conv2d.0.forward") and selection.wants("Module.layer1.0.conv1.Conv2d.forward.0")
    assert not selection.wants("Module.layer1.0.conv2.Conv2d.forward.0")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stpe": [1]}, "unknown key 'stpe'; did you mean 'step'?"),
        ({"dump_pth": "x"}, "did you mean 'dump_path'?"),
        ({"statistic": {}}, "did you mean 'statistics'?"),
        ({"list": ["a"]}, "unknown key 'list'"),
        ({"statistics": {"lst": ["a"]}}, "unknown key statistics.'lst'; did you mean 'list'?"),
        ({"statistics": {"data_modes": ["all"]}}, "did you mean 'data_mode'?"),
        ({"tensor": {"scopes": []}}, "unknown key tensor.'scopes'"),
        ({"statistics": []}, "statistics: [] is not an object"),
        ({"task": "statistic"}, "task: 'statistic' is unknown; did you mean 'statistics'?"),
        ({"task": "run_ut"}, "'run_ut' is not supported: it records nothing of a training"),
        ({"task": "acc_check", "acc_check": {"white_list": "conv2d"}}, "white_list: 'conv2d' is not a list of strings"),
        ({"task": "diff_check"}, "'diff_check' is not supported: it compares checksums"),
        ({"task": "grad_probe"}, "use level 'L0'"),
        ({"task": 3}, "task: 3 is unknown"),
        ({"level": "L2", "task": "nan_check"}, "level: 'L2' does not go with task 'nan_check'"),
        ({"level": "L2"}, "level: 'L2' needs the agent below Python"),
        ({"level": "L3"}, "level: 'L3' is unknown"),
        ({"step": ["a"]}, "steps: 'a' is not a number"),
        ({"step": [3, "5-4"]}, "ends before it begins"),
        ({"rank": [-1]}, "below 0"),
        ({"dump_path": 3}, "output: 3 is not a folder path"),
        ({"extra_info": "yes"}, "extra_info: 'yes' is neither true nor false"),
        ({"dump_enable": "on"}, "dump_enable: 'on' is neither true nor false"),
        ({"task": "nan_check", "nan_check": {"overflow_nums": 0}}, "nan_check.overflow_nums: 0 is not a number of steps to keep"),
        ({"statistics": {"overflow_nums": 1}}, "unknown key statistics.'overflow_nums'"),
        ({"load": {"path": "x"}}, "load: {'path': 'x'} names no dump (path) or no modules"),
        ({"load": {"path": "x", "modules": ["fc"], "step": 3}}, "load.step: 3 is not supported: values of another step"),
        ({"statistics": {"slice": [{"dim": 0}]}}, "slices: {'dim': 0} is not a rule of four whole numbers"),
        ({"statistics": {"request_id": 3}}, "statistics.request_id: 3 is not the name"),
        ({"tensor": {"bench_path": "a"}, "task": "tensor"}, "tensor.bench_path: 'a' is not supported: the checksums of an earlier dump"),
        ({"tensor": {"diff_nums": 1}, "task": "tensor"}, "tensor.diff_nums: "),
        ({"statistics": {"white_list": ["a"]}}, "white_list: "),
        ({"statistics": {"black_list": ["a"]}}, "use 'exclude'"),
        ({"statistics": {"error_data_path": "a"}}, "error_data_path: "),
        ({"statistics": {"summary_mode": "md6"}}, "summary_mode: 'md6' is unknown; did you mean 'md5'?"),
        ({"statistics": {"data_mode": ["forwards"]}}, "did you mean 'forward'?"),
        ({"statistics": {"data_mode": ["all", "input"]}}, "holds 'all' and others"),
        ({"statistics": {"data_mode": "all"}}, "is not a list of strings"),
        ({"statistics": {"list": "conv2d"}}, "is not a list of strings"),
        ({"statistics": {"scope": ["Torch.a.0.forward"]}}, "is not a pair of full op names"),
        ({"statistics": {"scope": ["a", "b"]}}, "'a' is not a full op name"),
        ({"common_dump_settings": {"dump_mode": 0}}, "MindSpore"),
        ([], "is not an object with keys"),
        ("{", "is not JSON"),
        ('{"task": "statistics", "task": "tensor"}', "key 'task' appears twice"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(config: Config, tmp_path: Path, values: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        config(values)
    text = str(error.value)
    assert text.startswith(str(tmp_path / "config.json")) and message in text and "\n" not in text, text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "nan_check"}, "the first in which a NaN or an infinity is made stays"),
        ({"task": "overflow_check"}, "the first in which a NaN or an infinity is made stays"),
        ({"task": "exception_dump"}, "the one that an exception ends stays"),
        ({"task": "acc_check", "dump_path": "/d"}, "afterwards: 'probe check-ops /d --device npu:0'"),
        ({"task": "free_benchmark", "free_benchmark": {"pert_mode": "add_noise"}}, "probe compare --noise"),
        ({"async_dump": True}, "async_dump: not needed"),
        ({"precision": "high"}, "precision: not needed"),
        ({"risk_level": "CORE"}, "risk_level: ignored"),
        ({"custom_op_namespaces": ["_C"]}, "custom_op_namespaces: not needed"),
        ({"statistics": {"file_format": "npy"}}, "statistics.file_format: ignored, it belongs to MindSpore"),
        ({"statistics": {"check_mode": "all"}}, "statistics.check_mode: ignored"),
        ({"statistics": {"summary_mode": "md5"}}, "cannot be compared with msprobe's checksums"),
        ({"task": "structure"}, "together with statistics"),
    ],
)
def test_what_has_no_effect_is_said_once(config: Config, said: Callable[[], str], values: dict[str, Any], message: str) -> None:
    config(values)
    config(values)
    text = said()
    assert text.count("\n") == 1 and message in text and text.startswith("probe: warning: ")


@pytest.mark.parametrize("values", [{"async_dump": False}, {"dump_enable": True}, {"risk_level": "ALL"}, {"precision": ""}])
def test_what_changes_nothing_is_not_mentioned(config: Config, said: Callable[[], str], values: dict[str, Any]) -> None:
    config(values)
    assert said() == ""


def test_the_functions_of_acc_check_are_recorded_with_data(config: Config, said: Callable[[], str]) -> None:
    settings = config({"task": "acc_check", "acc_check": {"white_list": ["conv2d", "add", "relu"], "black_list": ["relu"], "error_data_path": "./"}})
    assert (settings.task, settings.level) == ("tensor", "api") and "acc_check.error_data_path: not needed" in said()
    selection = Selection(settings)
    wanted = {name: selection.wants(name) for name in ("Functional.conv2d.0.forward", "Tensor.add.3.forward", "Torch.addmm.0.forward", "Torch.relu.0.forward")}
    assert list(wanted.values()) == [True, True, False, False], wanted


def test_loaded_modules_read_a_dump(config: Config) -> None:
    settings = config({"level": "L0", "load": {"path": "/dump", "modules": ["Module.fc.Linear.forward.0"], "dump_after_load": True}})
    assert settings.inject == "/dump" and [str(name) for name in settings.inject_at] == ["Module.fc.Linear.forward.0"]


def test_arguments_of_the_constructor_win(config: Config) -> None:
    values = {"task": "statistics", "level": "L1", "step": [1], "dump_path": "a"}
    settings = config(values, task="tensor", level="L0", step=[2], dump_path="/b")
    assert (settings.task, settings.level, settings.steps, settings.output) == ("tensor", "module", Steps.parse(2), "/b")


def test_the_oldest_form(config: Config, tmp_path: Path) -> None:
    settings = config(OLDEST)
    assert settings.steps == Steps.parse("10,20") and settings.output == str(tmp_path / "out") and settings.task == "sketch"
    # A list that names functions and modules needs both to be seen.
    assert settings.level == "mix"
    selection = Selection(settings)
    conv, module = "Functional.conv2d.0.{}", "Module.layer1.0.conv1.Conv2d.{}.0"
    assert selection.wants(conv.format("forward")) and not selection.wants(conv.format("backward"), "", "backward")
    assert selection.wants(module.format("backward"), "", "backward") and not selection.wants(module.format("forward"))
    assert selection.wants(module.format("parameters_grad"), "", "gradients")
    assert not selection.wants("Functional.conv2d_extra.0.forward") and not selection.wants("Functional.relu.0.forward")


@pytest.mark.parametrize(
    ("mode", "names", "level"),
    [
        ("api", ["torch.relu"], "api"),
        ("module", ["net.fc"], "module"),
        ("module", ["torch.relu"], "mix"),
        ("api", [], "api"),
        ("module", [], "module"),
        (None, [], "api"),
    ],
)
def test_the_level_of_the_oldest_form(config: Config, mode: str | None, names: list[str], level: str) -> None:
    dump: dict[str, Any] = {"common_dump_settings": {"dump_mode": mode}, "api_list": [{"name": name} for name in names]}
    assert config({"dump": dump}).level == level


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ({"common_dump_setting": {}}, "unknown key dump.'common_dump_setting'; did you mean 'common_dump_settings'?"),
        ({"common_dump_settings": {"dump_iters": "1"}}, "did you mean 'dump_iter'?"),
        ({"common_dump_settings": {"dump_mode": "apis"}}, "dump_mode: 'apis' is unknown; did you mean 'api'?"),
        ({"common_dump_settings": {"dump_mode": 0}}, "dump_mode: 0 is unknown"),
        ({"common_dump_settings": {"dump_iter": "1;2"}}, "steps: '1;2' is not a number"),
        ({"common_dump_settings": 3}, "is not an object"),
        ({"api_list": {}}, None),
        ({"api_list": 3}, "dump.api_list: 3 is not a list"),
        ({"api_list": [3]}, "dump.api_list[0]: 3 is not an object"),
        ({"api_list": [{"nam": "x"}]}, "unknown key dump.api_list[0].'nam'; did you mean 'name'?"),
        ({"api_list": [{"api_type": "forward"}]}, "dump.api_list[0].name: None is not the name"),
        ({"api_list": [{"name": "torch.relu", "api_type": "foward"}]}, "api_type: 'foward' is unknown; did you mean 'forward'?"),
    ],
)
def test_slips_in_the_oldest_form(config: Config, dump: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert config({"dump": dump}).include == ()
        return
    with pytest.raises(SettingsError) as error:
        config({"dump": dump})
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_key_beside_the_oldest_form_is_refused(config: Config) -> None:
    with pytest.raises(SettingsError, match="unknown key 'task'"):
        config({**OLDEST, "task": "tensor"})


def test_arguments_win_over_the_oldest_form(config: Config) -> None:
    settings = config(OLDEST, task="tensor", level="L0", step=[3], dump_path="/x")
    assert (settings.task, settings.level, settings.steps, settings.output) == ("tensor", "mix", Steps.parse(3), "/x")


def test_a_byte_order_mark_is_no_fault(config: Config) -> None:
    assert config("\ufeff{}").level == "api"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="none.json: No such file"):
        read(tmp_path / "none.json")
