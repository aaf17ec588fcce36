"""Members of a pack as bytes: JSON in which non-finite numbers are words."""

from __future__ import annotations

import json
import math
from typing import Any


def member(content: Any) -> bytes:
    """`content` as UTF-8 JSON."""
    try:
        return _dump(content)
    except ValueError:
        # Look for NaN and infinities only now: most members have none.
        return _dump(_finite(content))


def _dump(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def _finite(content: Any) -> Any:
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return content
