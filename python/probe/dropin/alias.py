"""Answers `import msprobe`, so that programs and engines that have the older tool built in record with probe, without an edit.

Parts that probe has are modules with probe's own classes; importing any other part is an error that says so.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from probe.messages import say_once

#: Name of the older tool's package.
NAME = "msprobe"

#: Modules that are answered, and where each of their names comes from.
_MODULES: dict[str, dict[str, str]] = {
    "msprobe": {},
    "msprobe.core": {},
    "msprobe.core.config_check": {"ConfigChecker": "probe.config_check"},
    "msprobe.mindspore": {"PrecisionDebugger": "probe.mindspore", "seed_all": "probe.mindspore"},
    "msprobe.pytorch": {
        "ApiProfiler": "probe.dropin",
        "PrecisionDebugger": "probe.dropin",
        "module_dump": "probe.dropin.functions",
        "module_dump_end": "probe.dropin.functions",
        "seed_all": "probe.dropin.functions",
    },
}

#: Features of the older tool that are missing here, and their replacements.
_ADVICE = {
    "msprobe.pytorch.TrainerMon": "there is no monitor here; record with PrecisionDebugger, or import scalars with 'probe baseline'",
    "msprobe.pytorch.save": "use PrecisionDebugger.save",
}


def as_msprobe() -> None:
    """Make `import msprobe` import probe's drop-in from here on, whether or not the older tool is installed.

    Raises ImportError if the older tool itself is imported already: its classes are in use then.
    """
    present = sys.modules.get(NAME)
    if present is not None and not isinstance(present, _Part):
        where = getattr(present, "__file__", None) or "this process"
        raise ImportError(
            f"{NAME} itself ({where}) is imported already, so probe cannot take its place: call probe.as_msprobe() before anything imports {NAME}"
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Part(ModuleType):
    """One module of the older tool, whose names are looked up in probe when they are first used."""

    def __getattr__(self, name: str) -> Any:
        source = _MODULES[self.__name__].get(name)
        if source is not None:
            value = getattr(importlib.import_module(source), name)
            setattr(self, name, value)
            return value
        whole = f"{self.__name__}.{name}"
        if not name.startswith("__") and whole not in _MODULES:
            say_once(f"{whole}: {_advice(whole)}")
        raise AttributeError(f"module {self.__name__!r}, answered by probe, has no name {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *_MODULES[self.__name__]})


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of `_MODULES`, and refuses all others below the older tool's name."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns a spec for a part that is answered, None for other packages. Raises ModuleNotFoundError for a part
        that probe lacks."""
        if name != NAME and not name.startswith(f"{NAME}."):
            return None
        if name not in _MODULES:
            raise ModuleNotFoundError(f"{name}: {_advice(name)}", name=name)
        return ModuleSpec(name, self, origin="probe", is_package=name in ("msprobe", "msprobe.core", "msprobe.mindspore", "msprobe.pytorch"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns an empty module."""
        return _Part(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Says once that probe answers."""
        if module.__name__ == NAME:
            say_once(f"import {NAME} is answered by probe")


def _advice(name: str) -> str:
    known = ", ".join(sorted({*_MODULES} - {"msprobe", "msprobe.core"}))
    return f"not a part that probe answers ({known})" + (f"; {_ADVICE[name]}" if name in _ADVICE else "")
