"""Watches for calls that set seeds, from the first use of this package, and records the generator states right after.

The functions themselves behave as always. They are restored once a pack is written.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from probe.config_check import generators
from probe.patches import Patches

# Function -> the generators it seeds.
_TORCH = {
    "manual_seed": ("torch", "device"),
    "seed": ("torch", "device"),
}
# Of MindSpore one seeds functions and NumPy, the other the generator of `mint`.
_MINDSPORE = {"set_seed": ("numpy", "mindspore"), "manual_seed": ("mindspore.generator",)}
_DEVICE = ("manual_seed", "manual_seed_all", "seed", "seed_all")
# Modules whose functions seed by calling others of theirs, this package among them.
_NO_PLACE = ("probe", "random", "torch", "torch_npu", "mindspore")
# Beyond this many, places are no longer distinguished and states no longer read.
_MAX_PLACES = 256
_MAX_STATES = 4096


class SeedWatch:
    """Seed calls seen in this process."""

    def __init__(self) -> None:
        self.values: dict[str, int | None] = {}
        self.origins: dict[str, generators.Twister | None] = {}
        self.seeded: generators.Snapshot | None = None
        self._calls: dict[tuple[str, int | None, str], int] = {}
        self._states = 0
        self._patches = Patches()
        self._watched: set[str] = set()
        self._inner = threading.local()

    def start(self, just_imported: str | None = None) -> None:
        """Watches the libraries imported so far; may be called again when there are more. `just_imported` names one
        that has run completely although the interpreter still counts it as being imported."""
        libraries: list[tuple[str, dict[str, tuple[str, ...]]]] = [("random", {"seed": ("python",)})]
        if "numpy" in sys.modules and not _importing("numpy", just_imported):
            # NumPy loads this part on first use, which would be too late; loading it draws nothing.
            import numpy.random  # noqa: F401
        libraries.append(("numpy.random", {"seed": ("numpy",), "default_rng": ()}))
        libraries += [("torch", _TORCH), ("mindspore", _MINDSPORE)]
        libraries += [(f"torch.{device}", {name: ("device",) for name in _DEVICE}) for device in ("cuda", "npu")]
        # A library that is only half imported is watched the next time.
        whole = [entry for entry in libraries if not _importing(entry[0], just_imported)]
        replacements = [item for library, functions in whole for item in self._library(library, functions)]
        if replacements:
            self._patches.everywhere(replacements)

    def stop(self) -> None:
        """Restores the functions."""
        self._patches.undo()
        self._watched.clear()

    def calls(self) -> list[dict[str, Any]]:
        """Returns the calls as in `random.json`."""
        return [
            {"function": function, "value": value, "count": count, **({"place": place} if place else {})}
            for (function, value, place), count in list(self._calls.items())
        ]

    def _library(self, library: str, functions: dict[str, tuple[str, ...]]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
        module = sys.modules.get(library)
        names = [name for name in functions if hasattr(module, name)]
        if library in self._watched or not names:
            return []
        self._watched.add(library)
        return [(module, name, functools.partial(self._wrap, f"{library}.{name}", functions[name])) for name in names]

    def _wrap(self, function: str, seeds: tuple[str, ...], original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def seeding(*arguments: Any, **keywords: Any) -> Any:
            depth = getattr(self._inner, "depth", 0)
            self._inner.depth = depth + 1
            try:
                return original(*arguments, **keywords)
            finally:
                self._inner.depth = depth
                # `torch.manual_seed` seeds the devices through their own functions: one call, not three.
                if depth == 0:
                    try:
                        self._note(function, seeds, arguments, keywords)
                    except Exception:
                        pass

        return seeding

    def _note(self, function: str, seeds: tuple[str, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        value = _number(arguments[0] if arguments else next(iter(keywords.values()), None))
        key = (function, value, _place(sys._getframe(2)))
        if key in self._calls or len(self._calls) < _MAX_PLACES:
            self._calls[key] = self._calls.get(key, 0) + 1
        if threading.current_thread() is not threading.main_thread() or self._states >= _MAX_STATES:
            return
        self._states += 1
        now = generators.snapshot()
        if not function.endswith("default_rng"):
            self.seeded = now
        for generator in seeds:
            if generator != "device":
                self.values[generator] = value
                self.origins[generator] = generators.twister(now, generator)


def _importing(name: str, just_imported: str | None) -> bool:
    return any(
        getattr(getattr(sys.modules.get(part), "__spec__", None), "_initializing", False)
        for part in {name, name.partition(".")[0]} - {just_imported}
    )


def _number(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def _place(frame: Any) -> str:
    """`train.py:15 seed_everything`: the first frame outside this package and the generator libraries."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NO_PLACE:
            code = frame.f_code
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"
        frame = frame.f_back
    return ""


watch = SeedWatch()
