"""Part `hyperparameters`: the settings that the training was started with, typed where a program has them as
values."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from probe.config_check import scripts, secrets

_MAX_FRAMES = 64
_MAX_JSON = 4 << 20


def collect(
    *,
    extra: Mapping[str, Any] | None = None,
    files: list[str | Path] | None = None,
    namespaces: list[argparse.Namespace] | None = None,
    frame: FrameType | None = None,
    model: Any = None,
) -> dict[str, Any]:
    """Returns all settings sources found, as in `hyperparameters.json`.

    `namespaces` are the results of parsers; `frame` is the caller, whose variables are searched for more.
    """
    sources: list[dict[str, Any]] = []
    known: set[int] = set()
    parsed = list(namespaces or [])
    found = [("argparse", "Namespace", vars(namespace)) for namespace in parsed]
    known.update(map(id, parsed))
    for value in _variables(frame):
        if id(value) not in known:
            known.add(id(value))
            found += _of_variable(value)
    megatron = _megatron()
    if megatron is not None and not any(values == megatron for _, _, values in found):
        found.append(("megatron", "args", megatron))
    deepspeed = _deepspeed(model, [values for _, _, values in found])
    if deepspeed is not None:
        found.append(("deepspeed", "config", deepspeed))
    if extra:
        found.append(("extra", "extra", dict(extra)))
    for kind, name, values in found:
        entry = {"source": kind, "name": name, "values": secrets.clean(values)}
        if entry not in sources:
            sources.append(entry)
    for path in files or []:
        try:
            sources.append(scripts.source(path))
        except (OSError, ValueError) as error:
            sources.append({"source": "script", "name": Path(path).name, "values": {}, "note": secrets.text(str(error))})
    return {"sources": sources}


def script_frame() -> FrameType | None:
    """Returns the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "probe":
        frame = frame.f_back
    return frame


def _variables(frame: FrameType | None) -> Iterator[Any]:
    """Values of the variables of the calling functions and of the script."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("torch", "probe", "runpy", "threading"):
            yield from list(frame.f_locals.values())
        frame = frame.f_back
    main = sys.modules.get("__main__")
    yield from list(vars(main).values()) if main is not None else ()


def _of_variable(value: Any) -> list[tuple[str, str, dict[str, Any]]]:
    kind = type(value)
    # Checks the type: asking an object for its class may run code of a lazy proxy.
    if issubclass(kind, argparse.Namespace):
        return [("argparse", kind.__name__, vars(value))]
    classes = [base.__name__ for base in kind.__mro__] if isinstance(kind, type) else []
    if "TrainingArguments" in classes or (dataclasses.is_dataclass(kind) and kind.__name__.endswith("Arguments")):
        names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(kind) else list(vars(value))
        return [("training_arguments", kind.__name__, {name: getattr(value, name, None) for name in names})]
    if kind.__name__ in ("DictConfig", "OmegaConf") and kind.__module__.startswith("omegaconf"):
        omegaconf = sys.modules["omegaconf"].OmegaConf
        return [("yaml", kind.__name__, omegaconf.to_container(value, resolve=True))]
    return []


def _megatron() -> dict[str, Any] | None:
    for name in ("megatron.training.global_vars", "megatron.global_vars"):
        arguments = getattr(sys.modules.get(name), "_GLOBAL_ARGS", None)
        if arguments is not None:
            return dict(vars(arguments))
    return None


def _deepspeed(model: Any, settings: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the configuration of a DeepSpeed engine, or of the file that an argument names."""
    config = getattr(model, "config", None) if type(model).__name__.endswith("Engine") else None
    if isinstance(config, dict):
        return config
    for values in settings:
        for name in ("deepspeed_config", "deepspeed", "ds_config"):
            value = values.get(name)
            if isinstance(value, dict):
                return value
            if isinstance(value, (str, os.PathLike)) and os.fspath(value).endswith(".json"):
                try:
                    path = Path(value)
                    if path.stat().st_size <= _MAX_JSON:
                        loaded = json.loads(path.read_text("utf-8"))
                        return loaded if isinstance(loaded, dict) else None
                except (OSError, ValueError):
                    continue
    return None
