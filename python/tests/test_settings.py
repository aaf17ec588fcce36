"""Every key of `probe.toml`, and every way to write one wrongly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from probe.patterns import Pattern
from probe.settings import KEYS, Settings, SettingsError, Slice
from probe.steps import Steps

#: Each key: as written in TOML, and the value it stands for.
VALUES: dict[str, tuple[str, Any]] = {
    "output": ('"/tmp/dump"', "/tmp/dump"),
    "overwrite": ("true", True),
    "steps": ('[10, "12-14"]', Steps.parse("10,12-14")),
    "control": ('"/data/record"', "/data/record"),
    "ranks": ('"0-3"', Steps.parse("0-3")),
    "level": ('"op"', "op"),
    "task": ('"tensor"', "tensor"),
    "phases": ('["backward", "forward"]', ("forward", "backward")),
    "slots": ('["output"]', ("output",)),
    "include": ('["torch.relu", {name = "fc", phases = ["backward"]}]', (Pattern("torch.relu"), Pattern("fc", ("backward",)))),
    "exclude": ('["*dropout*"]', (Pattern("*dropout*"),)),
    "tensors": ('"torch.nn.functional.linear"', (Pattern("torch.nn.functional.linear"),)),
    "scope": (
        '["Functional.linear.0.forward", "Module.fc.Linear.forward.1"]',
        ("Functional.linear.0.forward", "Module.fc.Linear.forward.1"),
    ),
    "slices": ("[{dim = 0, size = 16, begin = 0, end = 4}]", (Slice(0, 16, 0, 4),)),
    "max_bytes": ('"2GB"', 2_000_000_000),
    "host_bytes": ('"3MiB"', 3 << 20),
    "fused": ("true", True),
    "stacks": ("false", False),
    "step_on": ('"my_training.train_step"', "my_training.train_step"),
    "keep": ('"non-finite"', "non-finite"),
    "keep_steps": ("3", 3),
    "perturb": ("7", 7),
    "inject": ('"/data/dump"', "/data/dump"),
    "inject_at": ('["layers.1"]', (Pattern("layers.1"),)),
    "replace": ('["results"]', ("results",)),
    "recheck": ("true", True),
    "poison": ("true", True),
    "pack": ("true", True),
    "quiet": ("true", True),
    "rank": ("3", 3),
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "probe.toml"
    path.write_text(text)
    return path


def test_every_key_has_a_case() -> None:
    assert set(VALUES) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_read(tmp_path: Path, key: str) -> None:
    text, value = VALUES[key]
    settings = Settings.from_toml(written(tmp_path, f"{key} = {text}"))
    assert getattr(settings, key) == value
    default = Settings.from_toml(written(tmp_path, ""))
    for other in KEYS:
        assert other == key or getattr(settings, other) == getattr(default, other)


@pytest.mark.parametrize("key", KEYS)
def test_each_misspelt_key_is_refused_with_the_right_one(tmp_path: Path, key: str) -> None:
    text, _ = VALUES[key]
    place = next(place for place in range(1, len(key)) if key[place] != key[place + 1])
    slip = key[:place] + key[place + 1] + key[place] + key[place + 2 :]
    path = written(tmp_path, f"{slip} = {text}")
    with pytest.raises(SettingsError) as error:
        Settings.from_toml(path)
    assert str(error.value) == f"{path}: unknown key {slip!r}; did you mean {key!r}?"
    with pytest.raises(SettingsError, match=f"did you mean '{key}'"):
        Settings.from_arguments(**{slip: 1})


def test_a_key_like_no_other_is_refused_with_all_there_are() -> None:
    with pytest.raises(SettingsError, match="known: output, overwrite, steps, step_on, ranks"):
        Settings.from_arguments(zzzzzz=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('steps = "1o"', "steps: '1o' is not a number or range; write 10, \"10-12\", \"10,20\" or a list of them"),
        ("steps = []", "steps: holds no number"),
        ("ranks = -1", "ranks: -1 is below 0"),
        ("ranks = true", "ranks: True is not a number or range"),
        ('level = "modul"', "level: 'modul' is unknown; did you mean 'module'?"),
        ("level = 1", "level: 1 is unknown; known: module, mix, api, op, save"),
        ('task = "sketches"', "task: 'sketches' is unknown; did you mean 'sketch'?"),
        ('phases = ["foward"]', "phases: 'foward' is unknown; did you mean 'forward'?"),
        ("phases = []", "phases: is empty"),
        ('slots = ["inputs"]', "slots: 'inputs' is unknown; did you mean 'input'?"),
        ("slots = 3", "slots: 3 is not a list of strings"),
        ('include = [""]', "include: '' is not the name"),
        ("include = [3]", "include: 3 is not the name"),
        ('include = [{nam = "x"}]', "include: unknown key 'nam' in {'nam': 'x'}; did you mean 'name'?"),
        ('include = [{phases = ["forward"]}]', "is not the name of an op or a module"),
        ('include = [{name = "x", phases = ["forwards"]}]', "did you mean 'forward'?"),
        ("exclude = 3", "exclude: 3 is not a list of strings"),
        ("tensors = {x = 1}", "tensors: unknown key 'x'"),
        ('scope = ["Functional.linear.0.forward"]', "is not a pair of full op names"),
        ('scope = ["linear", "Functional.relu.0.forward"]', "scope: 'linear' is not a full op name"),
        ('max_bytes = "2 apples"', "max_bytes: '2 apples' has an unknown unit"),
        ('max_bytes = "much"', "max_bytes: 'much' is not a size"),
        ("max_bytes = -1", "max_bytes: -1 is below 0"),
        ("max_bytes = 1.5", "max_bytes: 1.5 is not a size"),
        ('stacks = "yes"', "stacks: 'yes' is neither true nor false"),
        ("slices = [{dim = 0, size = 4, begin = 2, end = 9}]", "is no part of a dimension: 0 <= begin < end <= size"),
        ("slices = [{dim = 0}]", "slices: {'dim': 0} is not a rule of four whole numbers"),
        ("slices = 3", "slices: 3 is not a list"),
        ("perturb = -1", "perturb: -1 is not a seed; write true, or a number from 0 up"),
        ("keep = 'nonfinite'", "keep: 'nonfinite' is unknown; did you mean 'non-finite'?"),
        ("keep_steps = 0", "keep_steps: 0 is not a number of steps; write 1 or more, or 'all'"),
        ("keep = 'non-finite'\ntask = 'hash'", "keep: 'non-finite' needs numbers"),
        ('perturb = "yes"', "perturb: 'yes' is not a seed"),
        ("rank = -1", "rank: -1 is not a rank"),
        ("output = 3", "output: 3 is not a folder path"),
        ('output = ""', "output: '' is not a folder path"),
        ("[capture]", "unknown key 'capture'"),
        ("steps = ", "is not TOML"),
        ("steps = 1\nsteps = 2", "is not TOML"),
    ],
)
def test_each_wrong_value_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as error:
        Settings.from_toml(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ") and message in said and "\n" not in said


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere.toml: No such file"):
        Settings.from_toml(tmp_path / "nowhere.toml")
    (tmp_path / "probe.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        Settings.from_toml(tmp_path / "probe.toml")


@pytest.mark.parametrize(
    ("size", "value"),
    [(0, 0), ("0", 0), (12, 12), ("7B", 7), ("500MB", 500_000_000), ("1.5GiB", 3 << 29), ("2 gb", 2 * 10**9), ("4KiB", 4096)],
)
def test_sizes(size: object, value: int) -> None:
    assert Settings.from_arguments(max_bytes=size).max_bytes == value


def test_arguments_win_over_the_file_and_a_slip_in_the_file_is_still_found(tmp_path: Path) -> None:
    path = written(tmp_path, 'task = "hash"\nlevel = "op"')
    settings = Settings.from_toml(path, task="tensor", steps=None)
    assert (settings.task, settings.level, settings.steps, settings.source) == ("tensor", "op", Steps(), str(path))
    with pytest.raises(SettingsError, match="probe.toml: task"):
        Settings.from_toml(written(tmp_path, 'task = "hush"'), task="tensor")


def test_the_output_is_absolute_and_starts_where_the_command_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_arguments(output="dump").output == str(tmp_path / "dump")
    assert Settings.from_arguments().output == str(tmp_path / "probe_dump")
    assert Settings.from_arguments(output="~/dump").output == os.path.expanduser("~/dump")
    assert Settings.gathered(None, {"output": "dump"}, "/elsewhere").output == "/elsewhere/dump"
    assert Settings.gathered(None, {}, "/elsewhere").output == "/elsewhere/probe_dump"
    assert Settings.gathered(None, {"output": "/dump"}, "/elsewhere").output == "/dump"
    assert Settings.gathered(written(tmp_path, 'output = "d"'), {}, "/elsewhere").output == "/elsewhere/d"


def test_the_description_reads_back() -> None:
    settings = Settings.from_arguments(**{key: value for key, (_, value) in VALUES.items()})
    plain = settings.describe()
    assert plain["steps"] == "10,12-14" and plain["include"][1] == {"name": "fc", "phases": ["backward"]}
    assert Settings.from_arguments(**{key: plain[key] for key in KEYS}) == settings


def test_settings_are_a_value() -> None:
    settings = Settings.from_arguments(steps=3)
    assert settings == Settings.from_arguments(steps="3") and hash(settings) == hash(Settings.from_arguments(steps=[3]))
    assert settings.replaced(rank=2).rank == 2
    with pytest.raises(SettingsError):
        settings.replaced(level="no")
    with pytest.raises(AttributeError):
        settings.level = "op"  # type: ignore[misc]


def test_the_example_of_the_guide_is_read() -> None:
    example = Path(__file__).resolve().parents[2] / "docs" / "probe.toml"
    settings = Settings.from_toml(example)
    text = example.read_text()
    assert settings.steps == Steps.parse("10,20")
    for key in KEYS:
        assert f"{key} = " in text, f"{key} is not explained"
