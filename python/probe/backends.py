"""What `torch.compile` compiles with, and whether it does now."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def backend_of(callback: Any) -> str:
    """Name of the backend behind the callback of a compiled function: `inductor`, `eager`, …; empty when it has none."""
    found = callback
    # Newer versions of torch have the second name for the first.
    names = ("_torchdynamo_orig_callable", "_torchdynamo_orig_backend")
    while (inner := next((getattr(found, name) for name in names if hasattr(found, name)), None)) is not None:
        found = inner
    return getattr(found, "compiler_name", None) or getattr(found, "__name__", None) or ""


def compiling() -> Callable[[], bool]:
    """Torch's function that is true to a tracer alone, so that traced code shows what it would without us."""
    torch = sys.modules["torch"]
    # Versions before 2.3 have it in another place.
    places = (getattr(torch, "compiler", None), getattr(torch, "_utils", None))
    return next((place.is_compiling for place in places if hasattr(place, "is_compiling")), bool)
