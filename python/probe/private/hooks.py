"""Hooks that torch calls around every optimizer step."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import _global_optimizer_post_hooks


def is_last(handle: Any) -> bool:
    """Returns true if no hook is called after this one when a step ends."""
    return next(reversed(_global_optimizer_post_hooks), None) == handle.id
