"""The oldest form: the file named by the environment variable `MSPROBE_PATH`.

```json
{"dump": {"common_dump_settings": {"dump_mode": "api", "dump_path": "./out", "dump_iter": "10|20"},
          "api_list": [{"name": "torch.nn.functional.conv2d", "api_type": "forward"},
                       {"name": "my_model.layer1.0.conv1", "api_type": "backward"}]}}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe.dropin.config_json import DEFAULT_PATH, LEVELS_BEFORE
from probe.dropin.keys import Keys
from probe.nearest import suggestion
from probe.patterns import PHASES, Pattern, is_op_name
from probe.settings import LEVELS, TASKS, Settings, SettingsError

_MODES = {"api": "api", "module": "module", "mix": "mix", "op": "op"}
_DIRECTIONS = {"forward": ("forward",), "backward": ("backward", "gradients"), "all": PHASES}


def settings(values: Mapping[str, Any], source: str, arguments: Mapping[str, Any]) -> Settings:
    """Converts the content of such a file to settings. Raises SettingsError."""
    top = Keys(values, source)
    top.only(("dump",))
    dump = top.inside("dump")
    dump.only(("common_dump_settings", "api_list"))
    common = dump.inside("common_dump_settings")
    common.only(("dump_mode", "dump_path", "dump_iter", "step_on"))
    entries = _entries(dump, source)
    chosen: dict[str, Any] = {
        "output": arguments.get("dump_path") or common.get("dump_path") or DEFAULT_PATH,
        "steps": arguments.get("step") if arguments.get("step") is not None else common.get("dump_iter"),
        "step_on": common.get("step_on"),
        "level": _covering(_level(common, arguments.get("level")), entries),
        "task": _task(source, arguments.get("task")),
        "include": entries,
    }
    try:
        made = Settings.from_arguments(**chosen)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None
    return made.with_source(source)


def _level(common: Keys, argument: Any) -> str:
    if argument is not None:
        if argument not in LEVELS_BEFORE and argument not in LEVELS:
            raise SettingsError(f"level: {argument!r} is unknown; {suggestion(str(argument), LEVELS_BEFORE)}")
        return LEVELS_BEFORE.get(argument, argument)
    mode = common.get("dump_mode")
    if mode is None:
        return "api"
    if not isinstance(mode, str) or mode not in _MODES:
        raise common.error("dump_mode", f"is unknown; {suggestion(str(mode), _MODES)}")
    return _MODES[mode]


def _covering(level: str, entries: tuple[Pattern, ...]) -> str:
    """Returns the level at which every entry is recorded: the list may hold functions and modules, whatever the
    mode."""
    functions = any(is_op_name(entry.text) and not entry.text.startswith("Module.") for entry in entries)
    modules = any(not is_op_name(entry.text) for entry in entries)
    return "mix" if (level == "api" and modules) or (level == "module" and functions) else level


def _task(source: str, argument: Any) -> str:
    # This form names no task. Sketches hold the statistics too, and give the reports a cosine.
    task = argument or "sketch"
    if task not in TASKS:
        raise SettingsError(f"{source}: task: {task!r} is unknown; {suggestion(str(task), TASKS)}")
    return task


def _entries(dump: Keys, source: str) -> tuple[Pattern, ...]:
    entries = dump.get("api_list")
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise dump.error("api_list", "is not a list of {name, api_type}")
    return tuple(_entry(entry, source, f"dump.api_list[{number}]") for number, entry in enumerate(entries))


def _entry(entry: Any, source: str, place: str) -> Pattern:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise SettingsError(f"{source}: {place}: {entry!r} is not an object with name and api_type")
    keys = Keys(entry, source, f"{place}.")
    keys.only(("name", "api_type"))
    name = keys.get("name")
    if not isinstance(name, str) or not name.strip():
        raise keys.error("name", "is not the name of a torch function or a module")
    direction = keys.get("api_type") or "all"
    if not isinstance(direction, str) or direction not in _DIRECTIONS:
        raise keys.error("api_type", f"is unknown; {suggestion(str(direction), _DIRECTIONS)}")
    return Pattern(name.strip(), _DIRECTIONS[direction])
