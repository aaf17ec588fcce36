"""Finds the operator where two training runs part ways, and says why.

Importing the package loads neither torch nor the compiled core: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib

# Type checkers read this as true; importing `typing` would dominate the cost of importing this package.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from probe.current import save as save
    from probe.current import step as step
    from probe.dropin import ApiProfiler as ApiProfiler
    from probe.dropin import PrecisionDebugger as PrecisionDebugger
    from probe.dropin.alias import as_msprobe as as_msprobe
    from probe.recorder import Capture as Capture
    from probe.recorder import capture as capture
    from probe.seeds import seed_all as seed_all
    from probe.settings import Settings as Settings
    from probe.settings import SettingsError as SettingsError

__version__ = "0.1.0"

#: Module that defines each public name.
_EXPORTS = {
    "ApiProfiler": "probe.dropin",
    "Capture": "probe.recorder",
    "PrecisionDebugger": "probe.dropin",
    "Settings": "probe.settings",
    "SettingsError": "probe.settings",
    "as_msprobe": "probe.dropin.alias",
    "capture": "probe.recorder",
    "save": "probe.current",
    "seed_all": "probe.seeds",
    "step": "probe.current",
}

#: Submodules that are used as modules: `probe.config_check.apply_patch`, `probe.testing`.
_MODULES = ("config_check", "distributed", "rollout", "testing")

__all__ = [
    "ApiProfiler",
    "Capture",
    "PrecisionDebugger",
    "Settings",
    "SettingsError",
    "__version__",
    "as_msprobe",
    "capture",
    "save",
    "seed_all",
    "step",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
    elif name in _MODULES:
        try:
            value = importlib.import_module(f"probe.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"module 'probe' has no part {name!r}: {error}") from error
    else:
        from probe.nearest import suggestion

        raise AttributeError(f"module 'probe' has no name {name!r}; {suggestion(name, _EXPORTS)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})
