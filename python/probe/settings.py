"""Settings of a capture: every option, checked, however the user gave it.

Nothing in this file needs torch. Names that only the user's model and torch can resolve are checked in `probe.names`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from probe.nearest import suggestion
from probe.patterns import PHASES, Pattern, api_of, path_of
from probe.steps import Steps

#: Levels, from the coarsest to the finest. `save` records nothing by itself: only values passed to `probe.save`.
LEVELS = ("module", "mix", "api", "op", "save")
TASKS = ("statistics", "sketch", "hash", "tensor")
SLOTS = ("input", "output")
#: Steps that stay: all, those in which a value becomes NaN or infinite, the one that an exception ends.
KEEPS = ("all", "non-finite", "exception")
#: Values that `inject` replaces: what a call reads, the gradients that arrive at its results, and what it returns.
REPLACED = ("inputs", "gradients", "results")
#: Sources that may end an iteration automatically; any other text names a function or a module.
STEP_ON = ("optimizer", "model", "program")

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("", 1000), ("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)


class SettingsError(ValueError):
    """A setting cannot be used. The text is one line: location, key, value, and what to write instead."""


@dataclass(frozen=True)
class Slice:
    """A part of the tensors of which dimension `dim` has `size` elements: those from `begin` to before `end`."""

    dim: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that determines what a capture records.

    Created by `from_toml` and `from_arguments`, which check each value; the constructor takes checked values.
    """

    #: Folder of the dump, absolute.
    output: str
    #: True if an existing dump in the folder is replaced; otherwise it is refused.
    overwrite: bool = False
    #: Iterations to record, counted from 0.
    steps: Steps = Steps()
    #: Where iterations end: one of `STEP_ON` or the name of a function or module. None: at the optimizer's steps,
    #: unless the program calls `step()`.
    step_on: str | None = None
    #: File into which the number of iterations to record is written while the program runs; `steps` is not used then.
    control: str | None = None
    #: Ranks that record.
    ranks: Steps = Steps()
    #: Calls that count as ops: `module`, `api`, `mix` (both), `op` (dispatcher), `save` (only `probe.save`).
    level: str = "mix"
    #: Recorded content of a tensor: `statistics`, `sketch`, `hash`, `tensor`.
    task: str = "sketch"
    #: Phases to record, a subset of forward, backward, gradients.
    phases: tuple[str, ...] = PHASES
    #: Sides of an op to record, a subset of input, output. Gradients of parameters are an op's output.
    slots: tuple[str, ...] = SLOTS
    #: Ops to record; an empty list means all.
    include: tuple[Pattern, ...] = ()
    #: Ops not to record, whatever `include` says.
    exclude: tuple[Pattern, ...] = ()
    #: Ops whose data is stored as well, even if the task would not store it.
    tensors: tuple[Pattern, ...] = ()
    #: Full names of the first and the last op to record in each step, both included; None means the whole step.
    scope: tuple[str, str] | None = None
    #: Parts of tensors to record in their place.
    slices: tuple[Slice, ...] = ()
    #: Inference request of the older tool's scripts whose rows are recorded; not a key of `probe.toml`.
    request: str | None = None
    #: Most bytes of tensor data that a step of one rank may store; tensors beyond are recorded as a sketch. None: no
    #: limit.
    max_bytes: int | None = None
    #: Most bytes of tensors that a step of one rank may copy to the host for measuring if a device cannot.
    host_bytes: int = 1 << 30
    #: True if tensors on CUDA devices are measured by our own kernel instead of torch's operations.
    fused: bool = True
    #: True if the call stack of every op is recorded.
    stacks: bool = True
    #: Seed for moving weights and inputs by one rounding: the recorded run is then a different one, which shows the
    #: effect of rounding. Normally None: nothing is moved.
    perturb: int | None = None
    #: Steps whose records stay, one of `KEEPS`.
    keep: str = "all"
    #: Most steps that stay, unless all do; the recording ends with the last. None: no limit.
    keep_steps: int | None = 1
    #: Dump whose values take the place of the run's own, which is then a different run. None: nothing is replaced.
    inject: str | None = None
    #: Calls, or modules with what runs in them, whose values are replaced; an empty list means all.
    inject_at: tuple[Pattern, ...] = ()
    #: Values that are replaced, a subset of `REPLACED`.
    replace: tuple[str, ...] = ("inputs",)
    #: True if what ops read is held against what ops have written.
    recheck: bool = False
    #: True if memory that torch gives out unwritten is filled with NaN.
    poison: bool = False
    #: True if the configuration pack of the run is written beside the dump.
    pack: bool = False
    #: True if the line at the end of the recording is left out.
    quiet: bool = False
    #: Rank of this process if neither the environment nor torch.distributed knows it.
    rank: int | None = None
    #: File that the settings came from; None if there was none.
    source: str | None = None

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **arguments: Any) -> Settings:
        """Read `probe.toml`. An argument that is not None wins over the file's value.

        Raises SettingsError for an unreadable file and for every unusable key and value.
        """
        return cls.gathered(path, arguments)

    @classmethod
    def from_arguments(cls, **arguments: Any) -> Settings:
        """Take settings from keyword arguments, named and written as in `probe.toml`; None counts as not given.

        Raises SettingsError for every unusable name and value.
        """
        return cls.gathered(None, arguments)

    @classmethod
    def gathered(
        cls, path: str | os.PathLike[str] | None, arguments: Mapping[str, Any], directory: str | None = None
    ) -> Settings:
        """Combines the settings of a file, if there is one, and of arguments, which win. A relative `output` starts
        from `directory`.

        Raises SettingsError.
        """
        source = None if path is None else os.fspath(path)
        values = {} if source is None else read_toml(source)
        checked: dict[str, Any] = {"output": _path("probe_dump"), "source": source}
        raw_output: Any = "probe_dump"
        # The file is checked completely, even where an argument wins: a mistake in it would show up in the next run.
        for origin, pairs in ((source, values), (None, arguments)):
            for key, value in pairs.items():
                if origin is None and value is None:
                    continue
                checked[key] = _value(key, value, origin)
                raw_output = value if key == "output" else raw_output
        if directory is not None:
            checked["output"] = _path(os.path.join(directory, os.path.expanduser(os.fspath(raw_output))))
        if checked.get("keep") == "non-finite" and checked.get("task") == "hash":
            where = f"{source}: " if source else ""
            raise SettingsError(f"{where}keep: 'non-finite' needs numbers, and task 'hash' records none; choose task 'statistics'")
        return cls(**checked)

    def replaced(self, **arguments: Any) -> Settings:
        """Returns the settings with some replaced by new, checked values. Raises SettingsError."""
        return replace(self, **{key: _value(key, value, None) for key, value in arguments.items()})

    def with_source(self, source: str) -> Settings:
        """Returns the settings with a different source, for a file of another format."""
        return replace(self, source=source)

    def describe(self) -> dict[str, Any]:
        """Returns the settings as plain values, for the manifest of a dump."""
        plain: dict[str, Any] = {}
        for key in (entry.name for entry in fields(self)):
            value = getattr(self, key)
            if isinstance(value, Steps):
                plain[key] = str(value)
            elif key in ("include", "exclude", "tensors", "inject_at"):
                plain[key] = [_plain_pattern(pattern) for pattern in value]
            elif key == "slices":
                plain[key] = [asdict(rule) for rule in value]
            else:
                plain[key] = list(value) if isinstance(value, tuple) else value
        return plain


def _plain_pattern(pattern: Pattern) -> str | dict[str, Any]:
    return pattern.text if pattern.phases == PHASES else {"name": pattern.text, "phases": list(pattern.phases)}


def read_toml(source: str) -> dict[str, Any]:
    """Returns the pairs of a settings file, unchecked. Raises SettingsError if it cannot be read."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib  # type: ignore[import-not-found, no-redef]
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise SettingsError(f"{source}: {reason}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source}: is not TOML: {error}") from None


def _value(key: str, value: Any, source: str | None) -> Any:
    """The checked form of one setting."""
    where = f"{source}: " if source else ""
    read = _READERS.get(key)
    if read is None:
        raise SettingsError(f"{where}unknown key {key!r}; {suggestion(key, _READERS)}")
    try:
        return read(value)
    except ValueError as error:
        raise SettingsError(f"{where}{key}: {error}") from None


def _path(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError(f"{value!r} is not a folder path")
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def _file(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError(f"{value!r} is not the path of a file")
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def _word(known: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise ValueError(f"{value!r} is unknown; {suggestion(str(value), known)}")

    return read


def _words(known: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    """Returns a reader for a subset of the known words, in their own order."""
    one = _word(known)

    def read(value: Any) -> tuple[str, ...]:
        words = {one(word) for word in _list(value)}
        if not words:
            raise ValueError(f"is empty, so nothing would be recorded; choose from {', '.join(known)}")
        return tuple(word for word in known if word in words)

    return read


def _step_on(value: Any) -> str:
    if isinstance(value, str) and value and all(word.isidentifier() or word.isdigit() for word in value.split(".")):
        return value
    raise ValueError(f"{value!r} is not a name; write {', '.join(STEP_ON)}, or the name of a function or a module: my_training.train_step")


def _list(value: Any) -> list[Any]:
    """Returns a list, given as such or as a comma-separated text."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",")]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    raise ValueError(f"{value!r} is not a list of strings")


def _patterns(value: Any) -> tuple[Pattern, ...]:
    entries = [value] if isinstance(value, (str, Pattern, Mapping)) else _list(value)
    return tuple(dict.fromkeys(_pattern(entry) for entry in entries))


def _pattern(entry: Any) -> Pattern:
    if isinstance(entry, Pattern):
        return entry
    phases: tuple[str, ...] = PHASES
    text = entry
    if isinstance(entry, Mapping):
        for key in entry:
            if key not in ("name", "phases"):
                raise ValueError(f"unknown key {key!r} in {dict(entry)!r}; {suggestion(str(key), ('name', 'phases'))}")
        text = entry.get("name")
        if "phases" in entry:
            phases = _words(PHASES)(entry["phases"])
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{entry!r} is not the name of an op or a module")
    return Pattern(text.strip(), phases)


def _scope(value: Any) -> tuple[str, str]:
    names = _list(value)
    if len(names) != 2 or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{value!r} is not a pair of full op names, the first and the last to record")
    for name in names:
        if api_of(name) == name and path_of(name) is None:
            raise ValueError(f"{name!r} is not a full op name, such as 'Functional.linear.0.forward'; 'probe inspect' lists them")
    return names[0], names[1]


def _slices(value: Any) -> tuple[Slice, ...]:
    names = [entry.name for entry in fields(Slice)]
    rules = []
    for rule in [value] if isinstance(value, (Mapping, Slice)) else _list(value):
        if isinstance(rule, Slice):
            rules.append(rule)
            continue
        if not isinstance(rule, Mapping) or sorted(rule) != sorted(names) or not all(type(number) is int for number in rule.values()):
            raise ValueError(f"{rule!r} is not a rule of four whole numbers: {{dim = 0, size = 16, begin = 0, end = 4}}")
        made = Slice(**rule)
        if not (made.dim >= 0 and 0 <= made.begin < made.end <= made.size):
            raise ValueError(f"{dict(rule)!r} is no part of a dimension: 0 <= begin < end <= size")
        rules.append(made)
    return tuple(rules)


def _bytes(value: Any) -> int:
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif found:
        units = {unit.lower(): factor for unit, factor in _UNITS.items()}
        factor = units.get(found[2].lower())
        if factor is None:
            raise ValueError(f"{value!r} has an unknown unit; write 500MB, 2GB or 1.5GiB")
        size = int(Decimal(found[1]) * factor)
    else:
        raise ValueError(f'{value!r} is not a size; write a number of bytes, "500MB" or "2GB"')
    if size < 0:
        raise ValueError(f"{value!r} is below 0")
    return size


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither true nor false")


def _seed(value: Any) -> int | None:
    if isinstance(value, bool):
        return 0 if value else None
    if isinstance(value, int) and 0 <= value < 2**31:
        return value
    raise ValueError(f"{value!r} is not a seed; write true, or a number from 0 up")


def _keep_steps(value: Any) -> int | None:
    if value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"{value!r} is not a number of steps; write 1 or more, or 'all'")


def _rank(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is not a rank; ranks are counted from 0")


_READERS: dict[str, Callable[[Any], Any]] = {
    "output": _path,
    "overwrite": _flag,
    "steps": Steps.parse,
    "step_on": _step_on,
    "ranks": Steps.parse,
    "level": _word(LEVELS),
    "task": _word(TASKS),
    "phases": _words(PHASES),
    "slots": _words(SLOTS),
    "include": _patterns,
    "exclude": _patterns,
    "tensors": _patterns,
    "scope": _scope,
    "slices": _slices,
    "max_bytes": _bytes,
    "host_bytes": _bytes,
    "fused": _flag,
    "stacks": _flag,
    "perturb": _seed,
    "inject": _file,
    "inject_at": _patterns,
    "replace": _words(REPLACED),
    "recheck": _flag,
    "poison": _flag,
    "control": _file,
    "keep": _word(KEEPS),
    "keep_steps": _keep_steps,
    "pack": _flag,
    "quiet": _flag,
    "rank": _rank,
}

#: Every key of `probe.toml`, in the order of the guide.
KEYS: tuple[str, ...] = tuple(_READERS)
