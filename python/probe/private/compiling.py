"""`torch.compile`: its backend, whether it is compiling now, and where calls of compiled functions begin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def backend_of(callback: Any) -> str:
    """Returns the name of the backend behind a compiled function's callback: `inductor`, `eager`, …; empty if it has
    none."""
    found = callback
    # Newer versions of torch use the second name.
    names = ("_torchdynamo_orig_callable", "_torchdynamo_orig_backend")
    while (inner := next((getattr(found, name) for name in names if hasattr(found, name)), None)) is not None:
        found = inner
    return getattr(found, "compiler_name", None) or getattr(found, "__name__", None) or ""


def compiling() -> Callable[[], bool]:
    """Returns torch's function that is true only for a tracer, so that traced code is the same as without us."""
    # Programs of another framework have none.
    torch = sys.modules.get("torch")
    # Versions before 2.3 have it in another place.
    places = (getattr(torch, "compiler", None), getattr(torch, "_utils", None))
    return next((place.is_compiling for place in places if hasattr(place, "is_compiling")), bool)


#: Function that each call of a compiled function asks for its backend, since torch 2.6.
_ASKED = "_callback_from_stance"


def place_of_calls() -> Any | None:
    """Returns the module in which calls of compiled functions begin; None if the program cannot have compiled
    anything."""
    return sys.modules.get("torch._dynamo.eval_frame")


def asked(place: Any) -> Callable[[Any], Any] | None:
    """Returns the function that calls ask for their backend; None if there is none."""
    found: Callable[[Any], Any] | None = getattr(place, _ASKED, None)
    return found


def has_compiled(place: Any) -> bool:
    """Returns true if the program has compiled a function, in versions whose calls ask nothing."""
    return any(getattr(place, name, None) for name in ("cached_backends", "most_recent_backend"))


def replace_asked(place: Any, function: Callable[[Any], Any]) -> None:
    """Makes calls ask `function` instead."""
    setattr(place, _ASKED, function)


def leave_alone(function: Any) -> None:
    """Keeps torch from compiling a function that is called inside compiled code."""
    sys.modules["torch"]._dynamo.decorators.skip_code(function.__code__)
