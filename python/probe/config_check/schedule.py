"""Part `schedule`: state of the scheduler and its future rates, found on a clone."""

from __future__ import annotations

import copy
from typing import Any

from probe.config_check import secrets

STEPS = 64


class _Stand:
    """Stands in for the optimizer of a cloned scheduler: groups without parameters."""

    def __init__(self, optimizer: Any) -> None:
        self.param_groups = [
            {name: copy.deepcopy(value) for name, value in group.items() if name not in ("params", "param_names")} | {"params": []}
            for group in optimizer.param_groups
        ]
        self.defaults = dict(getattr(optimizer, "defaults", {}))
        self.state: dict[Any, Any] = {}
        # A scheduler checks this before it warns that it steps before the optimizer.
        self._opt_called = True
        self.step = _step


def _step(*_: Any, **__: Any) -> None:
    return None


_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def collect(scheduler: Any) -> dict[str, Any]:
    """Returns the scheduler as in `schedule.json`. Only reads the scheduler and its optimizer."""
    found: dict[str, Any] = {"class": type(scheduler).__name__, "state": _plain(_state(scheduler))}
    rates = _rates(scheduler)
    if rates is not None:
        found["rates"] = rates
    return found


def _state(scheduler: Any) -> dict[str, Any]:
    state = scheduler.state_dict()
    return state if isinstance(state, dict) else {}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """Keeps numbers, texts, bools and lists of them."""
    kept = {}
    for name, value in state.items():
        if isinstance(value, dict):
            value = _plain(value)
        elif isinstance(value, (list, tuple)):
            if any(not isinstance(item, (bool, int, float, str)) and item is not None for item in value):
                continue
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            continue
        kept[str(name)] = secrets.value_of(str(name), value)
    return kept


def _rates(scheduler: Any) -> list[list[float]] | None:
    """Rates of the next steps; None if the schedule depends on what the training passes to it."""
    optimizer = getattr(scheduler, "optimizer", None)
    if optimizer is None or hasattr(scheduler, "num_bad_epochs"):
        return None
    try:
        stand = _Stand(optimizer)
        clone = copy.deepcopy(scheduler, {id(optimizer): stand})
        rates = []
        for _ in range(STEPS):
            rates.append([float(group["lr"]) for group in stand.param_groups])
            _advance(clone)
    except Exception:
        # Not every scheduler can be cloned, or driven without its training.
        return rates if "rates" in locals() and rates else None
    return rates


def _advance(clone: Any) -> None:
    # Megatron's scheduler counts samples.
    if type(clone).__name__ == "OptimizerParamScheduler":
        clone.step(increment=1)
    else:
        clone.step()
