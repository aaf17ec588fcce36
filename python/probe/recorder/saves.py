"""Values that the program itself gives to the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from probe.private.guards import without_functions

if TYPE_CHECKING:
    from probe._core import Recorder


def save(core: Recorder, name: str, value: Any) -> None:
    """Records a value."""
    call = core.open(f"{name}.{core.number(name)}.debug")
    if call is not None:
        core.add(call, "output", [("value", value)])
        core.finish(call)


def save_gradients(core: Recorder, name: str, value: Any, active: Callable[[], bool]) -> None:
    """Records the gradients of the tensors in a value when they arrive, if an iteration is then being recorded."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if items is not None:
        for key, item in items:
            save_gradients(core, f"{name}.{key}", item, active)
    elif isinstance(value, torch.Tensor) and value.requires_grad:

        def arrived(gradient: torch.Tensor) -> None:
            if active():
                try:
                    with without_functions():
                        save(core, f"{name}_grad", gradient)
                except Exception as error:
                    core.fault(f"gradient of {name}: {error}")

        value.register_hook(arrived)
