"""What `torch.compile` compiles with, whether it does now, and where the calls of what it compiled begin."""

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


#: The function that each call of a compiled function asks for its backend, since torch 2.6.
_ASKED = "_callback_from_stance"


def place_of_calls() -> Any | None:
    """The module in which calls of compiled functions begin; None where the program cannot have compiled anything."""
    return sys.modules.get("torch._dynamo.eval_frame")


def asked(place: Any) -> Callable[[Any], Any] | None:
    """What calls ask for their backend; None where they ask nothing."""
    found: Callable[[Any], Any] | None = getattr(place, _ASKED, None)
    return found


def replace_asked(place: Any, function: Callable[[Any], Any]) -> None:
    """Lets calls ask `function`."""
    setattr(place, _ASKED, function)


def leave_alone(function: Any) -> None:
    """Keeps torch from compiling a function that is called in what it compiles."""
    sys.modules["torch"]._dynamo.decorators.skip_code(function.__code__)
