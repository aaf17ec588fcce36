"""The calls of the older tool's scripts, against a stand-in for the recorder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probe
from probe import ApiProfiler, PrecisionDebugger
from probe.dropin.requests import rows_of
from probe.settings import SettingsError, Slice

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def alone(recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    PrecisionDebugger.forget()
    ApiProfiler.forget()


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    def make(**values: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return str(path)

    return make


def test_a_whole_script(recorder: Any, config: Callable[..., str], tmp_path: Path, said: Callable[[], str]) -> None:
    debugger = PrecisionDebugger(config_path=config(task="statistics", dump_path="./d", level="L0", step=[1]))
    model = torch.nn.Linear(2, 2)
    for _ in range(2):
        debugger.start(model)
        debugger.stop()
        debugger.step()
    settings = recorder.settings()
    assert (settings["output"], settings["steps"], settings["level"]) == (str(tmp_path / "d"), "1", "module")
    assert recorder.events() == ["made"] + ["start", "stop", "step"] * 2 and said() == ""
    assert recorder.records()[1]["model"] == "Linear"


def test_the_calls_work_on_the_class_as_well(recorder: Any) -> None:
    PrecisionDebugger(task="tensor", dump_path="d", level="L1", step=[0, "2-3"])
    PrecisionDebugger.start(torch.nn.Linear(2, 2))
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert recorder.events() == ["made", "start", "stop", "step"] and recorder.settings()["steps"] == "0,2-3"


def test_without_a_file_the_defaults_are_the_older_tools(tmp_path: Path) -> None:
    settings = PrecisionDebugger().settings
    assert (settings.task, settings.level, settings.output) == ("statistics", "api", str(tmp_path / "dump_path"))
    assert settings.source == "PrecisionDebugger"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "tensr"}, "PrecisionDebugger: task: 'tensr' is unknown; did you mean 'tensor'?"),
        ({"level": "L4"}, "level: 'L4' is unknown"),
        ({"step": ["x"]}, "PrecisionDebugger: steps: 'x'"),
        ({"config_path": "nowhere.json"}, "nowhere.json: No such file"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        PrecisionDebugger(**arguments)
    assert message in str(error.value)


def test_a_second_debugger_is_the_first(said: Callable[[], str]) -> None:
    PrecisionDebugger(level="L0")
    PrecisionDebugger(level="L0")
    assert said() == ""
    assert PrecisionDebugger(level="mix").settings.level == "module"
    assert "a second PrecisionDebugger" in said()


def test_steps_count_before_the_first_start(recorder: Any) -> None:
    debugger = PrecisionDebugger(step=[2])
    debugger.step()
    debugger.step()
    debugger.start(torch.nn.Linear(1, 1))
    assert recorder.events() == ["made", "set_step", "start"] and recorder.records()[1]["step"] == 2


def test_a_training_that_goes_on_keeps_its_numbers(recorder: Any) -> None:
    debugger = PrecisionDebugger()
    debugger.set_init_step(100)
    debugger.start(torch.nn.Linear(1, 1))
    debugger.step()
    debugger.set_init_step(7)
    assert [record["step"] for record in recorder.records()] == [0, 100, 100, 101, 7]
    for wrong in (-1, "3", True):
        with pytest.raises(SettingsError):
            debugger.set_init_step(wrong)


def test_save_works_at_every_level_and_through_the_package(recorder: Any, said: Callable[[], str]) -> None:
    probe.save("early", 1)
    assert "no capture is active" in said()
    PrecisionDebugger(level="debug").save(torch.ones(1), "loss", save_backward=False)
    probe.save("loss", [1])
    events = recorder.records()
    assert events[0]["settings"]["level"] == "save"
    assert (events[1]["name"], events[1]["gradient"], events[2]["value"]) == ("loss", False, "[1]")
    PrecisionDebugger.forget()
    probe.save("late", 1)
    assert recorder.events()[-1] == "close"


def test_the_rank_can_be_given(recorder: Any) -> None:
    PrecisionDebugger().start(torch.nn.Linear(1, 1), rank_id=3)
    assert recorder.settings()["rank"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_range": [0, 3]}, "needs the model whose calls are the tokens"),
        ({"model": torch.nn.ReLU(), "token_range": [3, 0]}, r"\[3, 0\] is not a pair"),
        ({"model": torch.nn.ReLU(), "token_range": "0-3"}, "is not a pair"),
        ({"model": torch.nn.ReLU(), "token_range": [True, 3]}, "is not a pair"),
    ],
)
def test_what_start_cannot_do_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PrecisionDebugger().start(**arguments)


def test_the_rows_of_one_request() -> None:
    batch = {"chat-1": 3, "chat-70": 2, "chat-7-0a1b2c3d": 4}
    assert rows_of("chat-7", batch) == Slice(0, 9, 5, 9) and rows_of("chat-1", batch) == Slice(0, 9, 0, 3)
    assert rows_of("chat", batch) is None and rows_of("chat-1", {"chat-1": 0}) is None
    for wrong in ([1, 2], {"a": "2"}, 3):
        with pytest.raises(SettingsError, match="scheduled_tokens is not a dict"):
            rows_of("a", wrong)


def test_single_tokens_of_a_generation(recorder: Any) -> None:
    model, other = torch.nn.Linear(1, 1), torch.nn.ReLU()
    debugger = PrecisionDebugger()
    for _ in range(2):
        debugger.start([model], token_range=[1, 2])
        for _ in range(5):
            other(model(torch.ones(1)))
        debugger.stop()
        debugger.step()
    # The call behind the range pauses, and so does the script.
    assert recorder.events() == ["made"] + ["start", "stop", "stop", "step"] * 2


def test_the_recording_is_switched_while_the_script_runs(recorder: Any, config: Callable[..., str], said: Callable[[], str]) -> None:
    path = config(task="statistics", dump_enable=False)
    debugger = PrecisionDebugger(path)
    model = torch.nn.Linear(1, 1)

    def iteration() -> list[str]:
        before = len(recorder.events())
        debugger.start(model)
        debugger.stop()
        debugger.step()
        return recorder.events()[before:]

    assert "start" not in iteration()
    config(task="statistics", dump_enable=True)
    assert iteration() == ["start", "stop", "step"]
    Path(path).write_text('{"dump_enable": tru')
    assert "start" not in iteration() and "dump_enable cannot be read, so recording is off" in said()
    config(task="statistics", dump_enable=True)
    assert iteration() == ["start", "stop", "step"]


def test_a_switch_works_within_an_iteration_that_is_not_stopped(recorder: Any, config: Callable[..., str]) -> None:
    debugger = PrecisionDebugger(config(task="statistics", dump_enable=True))
    debugger.start(torch.nn.Linear(1, 1))
    config(task="statistics", dump_enable=False)
    debugger.step()
    config(task="statistics", dump_enable=True, dump_path="x")
    debugger.step()
    assert recorder.events() == ["made", "start", "step", "stop", "step", "start"]


def test_listed_names_are_checked_against_the_model(said: Callable[[], str], config: Callable[..., str]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    names = ["torch.rellu", "my_model.layer9", "my_model.0", "linear", "Linear.forward", "Functional.conv"]
    debugger = PrecisionDebugger(config(level="mix", statistics={"list": names}))
    debugger.start(model)
    debugger.start([model])
    text = said()
    assert text.count("warning") == 2 and "'torch.rellu' is not a torch function; did you mean 'torch.relu'?" in text
    assert "'my_model.layer9' is neither a module" in text


def test_one_module_alone(recorder: Any, said: Callable[[], str]) -> None:
    debugger = PrecisionDebugger(level="L0")
    debugger.module_dump(torch.nn.ReLU(), "act")
    with pytest.raises(SettingsError, match="before module_dump_end"):
        debugger.module_dump(torch.nn.ReLU(), "act")
    debugger.module_dump_end()
    assert recorder.events() == ["made", "start", "stop"] and recorder.records()[1]["model"] == "ReLU"
    debugger.module_dump_end()
    assert "module_dump() was not called before" in said()


def test_custom_functions_need_no_registration(said: Callable[[], str]) -> None:
    before = torch.relu
    PrecisionDebugger.register_custom_api(torch, "relu")
    PrecisionDebugger.restore_custom_api(torch, "relu")
    assert torch.relu is before and "torch.relu need not be registered" in said()


def test_calls_before_any_construction_say_so(recorder: Any, said: Callable[[], str]) -> None:
    PrecisionDebugger.start()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert said().count("no PrecisionDebugger has been made") == 3 and recorder.events() == []


def test_the_profiler_of_the_oldest_form(recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="MSPROBE_PATH is not set"):
        ApiProfiler()
    path = tmp_path / "msprobe.json"
    settings = {"dump_mode": "api", "dump_path": "./out", "dump_iter": "1|2"}
    path.write_text(json.dumps({"dump": {"common_dump_settings": settings, "api_list": [{"name": "torch.relu"}]}}))
    monkeypatch.setenv("MSPROBE_PATH", str(path))
    profiler = ApiProfiler()
    for _ in range(2):
        profiler.start()
        profiler.stop()
        profiler.save()
    ApiProfiler().start()
    assert recorder.events() == ["made"] + ["start", "stop", "step"] * 2 + ["start"]
    assert recorder.settings()["steps"] == "1-2" and recorder.settings()["include"] == ["torch.relu"]
