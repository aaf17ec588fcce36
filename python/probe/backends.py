"""What `torch.compile` compiles with."""

from __future__ import annotations

from typing import Any


def backend_of(callback: Any) -> str:
    """Name of the backend behind the callback of a compiled function: `inductor`, `eager`, …; empty when it has none."""
    found = callback
    # Newer versions of torch have the second name for the first.
    names = ("_torchdynamo_orig_callable", "_torchdynamo_orig_backend")
    while (inner := next((getattr(found, name) for name in names if hasattr(found, name)), None)) is not None:
        found = inner
    return getattr(found, "compiler_name", None) or getattr(found, "__name__", None) or ""
