"""Autocast, whose questions take a kind of device since torch 2.4, and out of memory, which has a name for all devices since 2.5."""

from __future__ import annotations

from typing import Any

import torch

#: Raised by a device without memory.
OUT_OF_MEMORY: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


def autocast_dtype(kind: str) -> torch.dtype | None:
    """Returns the type to which autocast casts float32 on this kind of device; None where it is off."""
    asked: Any = torch
    if hasattr(torch, "get_autocast_dtype"):
        return asked.get_autocast_dtype(kind) if asked.is_autocast_enabled(kind) else None
    if kind == "cpu":
        return asked.get_autocast_cpu_dtype() if asked.is_autocast_cpu_enabled() else None
    if kind == "cuda":
        return asked.get_autocast_gpu_dtype() if asked.is_autocast_enabled() else None
    device = getattr(torch, kind, None)
    enabled = getattr(device, "is_autocast_enabled", bool)
    return device.get_autocast_dtype() if enabled() else None
