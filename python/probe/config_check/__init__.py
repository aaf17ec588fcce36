"""Packs of a training setup for `probe config-check`, which tells whether two runs are comparable.

Importing this loads neither torch nor the compiled core; using `pack` or `ConfigChecker` does, and starts watching
seeds.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from probe.config_check.checker import ConfigChecker as ConfigChecker
    from probe.config_check.packing import pack as pack

_EXPORTS = {"ConfigChecker": "probe.config_check.checker", "pack": "probe.config_check.packing"}

__all__ = ["ConfigChecker", "pack"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'probe.config_check' has no name {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
