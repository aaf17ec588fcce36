"""The older tool's `config.json`: the meaning of each of its keys here.

Every key is mapped, refused by name with an alternative, or, if ignoring it changes no record, named in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from probe import launch
from probe.dropin.keys import Keys
from probe.messages import warn
from probe.nearest import suggestion
from probe.patterns import Pattern, path_of
from probe.settings import LEVELS, TASKS, Settings, SettingsError

#: The older tool's levels. `debug` records only the values passed to `save`.
LEVELS_BEFORE = {"L0": "module", "L1": "api", "mix": "mix", "debug": "save"}

#: The older tool's own defaults, used if script, file and environment are silent.
DEFAULT_PATH = "./dump_path"
DEFAULT_TASK = "statistics"
DEFAULT_LEVEL = "L1"

#: Tasks without a counterpart: the reason, and what to do instead.
_TASKS_REFUSED = {
    "run_ut": "it records nothing of a training, but checks functions afterwards; take a dump with task 'acc_check' and run 'probe check-ops' on it",
    "diff_check": "it compares checksums with an earlier dump of the older tool, and a dump here has others; take a dump with task 'hash' in both runs "
                  "and run 'probe compare'",
    "grad_probe": "it writes files of another form, which nothing here reads; use level 'L0': the gradients of all parameters are recorded, and 'probe "
                  "compare' judges them",
}

#: Tasks with a counterpart of another kind, and what is recorded instead. `{output}` is the dump.
_TASKS_MAPPED = {
    "acc_check": "what each function reads and makes is recorded; hold it against float64 afterwards: 'probe check-ops {output} --device npu:0'",
    "nan_check": "every step is recorded, and the first in which a NaN or an infinity is made stays, whole; a line names the op",
    "overflow_check": "every step is recorded, and the first in which a NaN or an infinity is made stays, whole; a line names the op",
    "exception_dump": "every step is recorded, and the one that an exception ends stays, whole; a line names the op",
    "free_benchmark": "this run is moved by one rounding everywhere, so it is not one to judge; record it once more with task 'sketch' and run "
                      "'probe compare --noise'",
}

_EARLIER = (
    "the checksums of an earlier dump of the older tool cannot be compared with those taken here; take dumps with task 'hash' in both runs, run 'probe "
    "compare', and record the data of what it names with 'tensor_list'"
)

#: Keys whose effect is not available: the reason, and what to do instead. Ignoring them would give a different dump from the one
#: asked for.
_REFUSED = {
    "bench_path": _EARLIER,
    "diff_nums": _EARLIER,
}

#: Keys of the task `acc_check` alone, and what other tasks have.
_OF_CHECKS = {
    "white_list": "use 'list'",
    "black_list": "use 'exclude' in probe.toml",
    "error_data_path": "'dump_path' is where everything goes",
}

#: MindSpore keys of the older tool.
_MINDSPORE = ("file_format", "check_mode")

_COMMON = ("task", "dump_path", "rank", "step", "level", "extra_info", "async_dump", "dump_enable", "precision", "risk_level",
           "custom_op_namespaces", "load", "quiet", "step_on")
_BLOCK = ("scope", "list", "data_mode", "summary_mode", "tensor_list", "slice", "request_id", "bench_path", "diff_nums",
          "white_list", "black_list", "error_data_path", *_MINDSPORE)
#: Events for which a task that keeps only some steps watches.
_KEEPS = {"nan_check": "non-finite", "overflow_check": "non-finite", "exception_dump": "exception"}
#: Keys that only choose how the older tool perturbs.
_CHOICES = ("fuzz_device", "fuzz_level", "fuzz_stage", "handler_type", "if_preheat", "max_sample", "pert_mode", "preheat_step")
_BLOCKS = ("statistics", "tensor", "structure", "sketch", "hash")
_BLOCKS_REFUSED = tuple(_TASKS_REFUSED)


def settings(values: Mapping[str, Any], source: str, arguments: Mapping[str, Any]) -> Settings:
    """Converts the content of a `config.json` to settings. Raises SettingsError."""
    given = {key: value for key, value in arguments.items() if value is not None}
    top = Keys({**values, **given}, source)
    # The file may contain blocks of tasks not chosen; the older tool ignores their content too.
    top.only((*_COMMON, *_BLOCKS, *_TASKS_MAPPED, *_BLOCKS_REFUSED))
    task = _task(top)
    block = top.inside(task)
    block.only((*_BLOCK, *(("overflow_nums",) if task in _KEEPS else _CHOICES if task in _TASKS_MAPPED else ())))
    for name in _BLOCKS:
        if name != task and top.has(name):
            top.inside(name).only(_BLOCK)
    _refuse(top, block)
    _warn(top, block)
    level = _level(top, task)
    chosen: dict[str, Any] = {
        "output": top.get("dump_path") or DEFAULT_PATH,
        "steps": _numbers(top, "step"),
        "ranks": _numbers(top, "rank"),
        "level": level,
        "task": _recorded(task, block),
        "include": (*(pattern for text in block.texts("list") for pattern in _listed(text)), *_functions(block, "white_list")),
        "exclude": _functions(block, "black_list"),
        "tensors": tuple(pattern for text in block.texts("tensor_list") for pattern in _listed(text)),
        "scope": _scope(block),
        "perturb": True if task == "free_benchmark" else None,
        "keep": _KEEPS.get(task),
        "keep_steps": _kept_steps(block),
        "slices": block.get("slice"),
        "stacks": top.flag("extra_info"),
        "quiet": top.flag("quiet"),
        "step_on": top.get("step_on"),
    } | _data_mode(block) | _loaded(top)
    request = block.get("request_id")
    if request is not None and not isinstance(request, str):
        raise block.error("request_id", "is not the name of an inference request")
    return replace(_checked(chosen, source), request=request)


def _loaded(top: Keys) -> dict[str, Any]:
    """Returns what `load` asks for: modules read what a dump has of the same step and rank."""
    if top.get("load") is None:
        return {}
    load = top.inside("load")
    load.only(("path", "modules", "step", "rank", "dump_after_load"))
    for key in ("step", "rank"):
        if load.get(key) is not None:
            raise load.error(key, f"is not supported: values of another {key} would show the difference between the two; leave it out, "
                             f"and they come from the same {key} of the dump")
    if load.get("path") is None or not load.texts("modules"):
        raise top.error("load", "names no dump (path) or no modules")
    if load.flag("dump_after_load") is False:
        warn(f"{load.name('dump_after_load')}: ignored, the run is recorded: what the modules make of the values is what it is for")
    return {"inject": load.get("path"), "inject_at": tuple(load.texts("modules"))}


def _checked(chosen: Mapping[str, Any], source: str) -> Settings:
    try:
        made = Settings.from_arguments(**chosen)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None
    return made.with_source(source)


def _task(top: Keys) -> str:
    task = top.get("task") or DEFAULT_TASK
    if task in _TASKS_REFUSED:
        raise top.error("task", f"is not supported: {_TASKS_REFUSED[task]}")
    if not isinstance(task, str) or task not in (*_BLOCKS, *_TASKS_MAPPED):
        raise top.error("task", f"is unknown; {suggestion(str(task), (*_BLOCKS, *_TASKS_MAPPED, *_TASKS_REFUSED))}")
    return task


def _recorded(task: str, block: Keys) -> str:
    """Returns our task, which the older tool spreads over `task` and `summary_mode`."""
    mode = block.get("summary_mode") or "statistics"
    if mode not in ("statistics", "md5", "xor"):
        raise block.error("summary_mode", f"is unknown; {suggestion(str(mode), ('statistics', 'md5', 'xor'))}")
    if mode != "statistics" and task == "statistics":
        return "hash"
    if task == "free_benchmark":
        return "sketch"
    if task == "acc_check":
        return "tensor"
    # The structure alone is not a separate record here, nor is what is not finite: both come with the statistics.
    return task if task in TASKS else "statistics"


def _level(top: Keys, task: str) -> str:
    level = top.get("level") or DEFAULT_LEVEL
    if level == "L2":
        if task in _KEEPS:
            raise top.error("level", f"does not go with task {task!r}: values are not looked at below Python; use level 'op'")
        if not launch.is_below_python():
            raise top.error("level", "needs the agent below Python, which is there only from the start of the program: run it as "
                                     "'probe capture --runtime acl -o DIR -- python SCRIPT', or use 'op', which records every op that torch dispatches")
        return "op"
    if not isinstance(level, str) or (level not in LEVELS_BEFORE and level not in LEVELS):
        raise top.error("level", f"is unknown; {suggestion(str(level), (*LEVELS_BEFORE, 'op'))}")
    level = LEVELS_BEFORE.get(level, level)
    return "mix" if task == "structure" and level not in ("module", "mix") else level


def _numbers(top: Keys, key: str) -> Any:
    value = top.get(key)
    if value is not None and not isinstance(value, (list, tuple, range, set)):
        # The older tool takes lists only; a single number or text can only mean one thing.
        return [value]
    return value


def _kept_steps(block: Keys) -> int | str | None:
    value = block.get("overflow_nums")
    if value is not None and (type(value) is not int or (value < 1 and value != -1)):
        raise block.error("overflow_nums", "is not a number of steps to keep; write 1 or more, or -1 for no limit")
    return "all" if value == -1 else value


def _data_mode(block: Keys) -> dict[str, Any]:
    known = ("all", "forward", "backward", "input", "output")
    modes = block.texts("data_mode")
    for mode in modes:
        if mode not in known:
            raise block.error("data_mode", f"holds {mode!r}, which is unknown; {suggestion(mode, known)}")
    if "all" in modes and len(modes) > 1:
        raise block.error("data_mode", "holds 'all' and others; leave out one or the other")
    chosen: dict[str, Any] = {}
    if {"forward", "backward"} & set(modes):
        chosen["phases"] = (["forward"] if "forward" in modes else []) + (["backward", "gradients"] if "backward" in modes else [])
    if {"input", "output"} & set(modes):
        chosen["slots"] = [mode for mode in modes if mode in ("input", "output")]
    return chosen


def _scope(block: Keys) -> list[str] | None:
    names = block.texts("scope")
    if names and len(names) != 2:
        raise block.error("scope", "is not a pair of full op names, the first and the last to record")
    return names or None


def _functions(block: Keys, key: str) -> tuple[Pattern, ...]:
    """Functions of a list of the task `acc_check`, which names them without a namespace: `conv2d`."""
    return tuple(Pattern(text if "." in text else f"*.{text}") for text in block.texts(key))


def _listed(text: str) -> list[Pattern]:
    """A name of `list`, which the older tool matches anywhere inside an op's name."""
    patterns = [Pattern(text, inside=True)]
    if path := path_of(text):
        # At level mix the name of a module call selects everything inside it.
        patterns.append(Pattern(path))
    return patterns


def _refuse(top: Keys, block: Keys) -> None:
    for key, advice in _REFUSED.items():
        for place in (top, block):
            if place.get(key) is not None:
                raise place.error(key, f"is not supported: {advice}")
    if top.get("task") != "acc_check":
        for key, advice in _OF_CHECKS.items():
            if block.get(key):
                raise block.error(key, f"belongs to task 'acc_check'; {advice}")
    top.flag("dump_enable")


def _warn(top: Keys, block: Keys) -> None:
    if top.flag("async_dump"):
        warn(f"{top.name('async_dump')}: not needed and ignored; records are always written in the background")
    if top.get("precision") is not None:
        warn(f"{top.name('precision')}: not needed and ignored; statistics are always taken in 64 bits")
    if top.get("risk_level") not in (None, "ALL"):
        warn(f"{top.name('risk_level')}: ignored, every function is recorded; 'exclude' in probe.toml leaves functions out")
    if top.get("custom_op_namespaces") is not None:
        warn(f"{top.name('custom_op_namespaces')}: not needed and ignored; level 'op' sees the ops of every namespace")
    for key in _MINDSPORE:
        if block.get(key) is not None:
            warn(f"{block.name(key)}: ignored, it belongs to MindSpore")
    if block.get("summary_mode") in ("md5", "xor"):
        warn(f"{block.name('summary_mode')}: an order-sensitive 128-bit hash is recorded instead; it cannot be compared with "
             "msprobe's checksums")
    if (task := top.get("task")) in _TASKS_MAPPED:
        warn(f"{top.name('task')}: {task!r}: {_TASKS_MAPPED[task].format(output=top.get('dump_path') or DEFAULT_PATH)}")
    if block.get("error_data_path") is not None:
        warn(f"{block.name('error_data_path')}: not needed and ignored; inputs and results of all calls are in the dump")
    if top.get("task") == "structure":
        warn(f"{top.name('task')}: the structure is recorded together with statistics")
