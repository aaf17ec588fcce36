"""The older tool's configuration file, in either of its two forms."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from probe.dropin import config_json, msprobe_json
from probe.dropin.switch import Switch
from probe.settings import Settings, SettingsError


def read(path: str | os.PathLike[str], **arguments: Any) -> Settings:
    """Read `config.json` (known by a key `task` or `dump_path`) or the oldest form, `msprobe.json` (known by a key `dump`).

    `arguments` are those of the debugger's constructor (task, dump_path, level, step); one that is not None wins over
    the file. Raises SettingsError for a file that cannot be read, is unknown, or has no meaning here.
    """
    source = os.fspath(path)
    values = _load(source)
    if "common_dump_settings" in values:
        raise SettingsError(
            f"{source}: 'common_dump_settings' at the top level is MindSpore's own dump file, which configures no capture of "
            "PyTorch; msprobe's format has it inside 'dump'"
        )
    if "dump" in values:
        return msprobe_json.settings(values, source, arguments)
    return config_json.settings(values, source, arguments)


def switch(path: str | os.PathLike[str]) -> Switch | None:
    """Returns the switch of a file that `read` has taken; None if it has none (`dump_enable`)."""
    on = _load(os.fspath(path)).get("dump_enable")
    return Switch(os.path.abspath(path), on) if isinstance(on, bool) else None


def _load(source: str) -> dict[str, Any]:
    try:
        # Some editors write a byte order mark.
        values = json.loads(Path(source).read_text(encoding="utf-8-sig"), object_pairs_hook=_each_key_once)
    except OSError as error:
        raise SettingsError(f"{source}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{source}: is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{source}: is not an object with keys such as task and dump_path")
    return values


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    for key in values:
        if sum(1 for other, _ in pairs if other == key) > 1:
            raise ValueError(f"key {key!r} appears twice in one object")
    return values
