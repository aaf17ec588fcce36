"""Part `scaler`: the gradient scaler of mixed precision."""

from __future__ import annotations

from typing import Any

NONE: dict[str, Any] = {"class": None}


def collect(scaler: Any) -> dict[str, Any]:
    """Returns the scaler as in `scaler.json`."""
    found: dict[str, Any] = {"class": type(scaler).__name__}
    is_enabled = getattr(scaler, "is_enabled", None)
    if callable(is_enabled):
        found["enabled"] = bool(is_enabled())
    state = scaler.state_dict() if callable(getattr(scaler, "state_dict", None)) else {}
    if not state:
        return found
    # The scale is a number in the state; asking the scaler itself may create the tensor that holds it.
    for name in ("scale", "growth_factor", "backoff_factor", "growth_interval"):
        if isinstance(state.get(name), (int, float)):
            found[name] = state[name]
    tracker = state.get("_growth_tracker")
    if isinstance(tracker, int):
        found["growth_tracker"] = tracker
    return found
