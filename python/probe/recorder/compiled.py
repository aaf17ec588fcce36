"""Functions compiled by `torch.compile`: the inputs and outputs of each.

Compiled code has no visible ops, and running it op by op instead would change its numbers. So a call of a compiled
function is one record. With the backend `eager` nothing is fused: there every op is recorded as usual.

While steps are recorded, torch's function that each call of a compiled function asks for its backend is replaced. It
signals the beginning of a call; a profile function installed for this one call reports the return value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from probe.messages import say_once
from probe.private import compiling
from probe.private.guards import without_functions

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.recorder.gradients import Gradients
    from probe.recorder.modules import Modules

#: Resumes recording.
_Resume = Callable[[], None]


class CompiledRegions:
    """Watches the calls of compiled functions."""

    def __init__(
        self,
        core: Recorder,
        modules: Modules,
        gradients: Gradients | None,
        silence: Callable[[], _Resume | None],
    ) -> None:
        """`silence` stops all recording on this thread until the returned function is called; None if nothing is
        being recorded."""
        self._core, self._modules, self._gradients, self._silence = core, modules, gradients, silence
        self._place: Any = None
        self._ask: Callable[[Any], Any] | None = None

    def attach(self) -> None:
        """Starts watching, if this program can have compiled anything."""
        place = compiling.place_of_calls()
        if place is None or self._ask is not None:
            return
        ask = compiling.asked(place)
        if ask is None:
            if compiling.has_compiled(place):
                say_once("torch.compile of this version cannot be recorded: 2.6 or later is needed; what runs in compiled functions is missing")
            return
        self._place, self._ask = place, ask
        compiling.replace_asked(place, self._begin)

    def detach(self) -> None:
        """Stops watching; a call under way is recorded to its end."""
        if self._ask is not None and compiling.asked(self._place) == self._begin:
            compiling.replace_asked(self._place, self._ask)
            self._ask = None

    def _begin(self, callback: Any) -> Any:
        """Called by torch at the start of a call, in place of the function it normally asks."""
        ask = self._ask or compiling.asked(self._place)
        found = ask(callback)
        if callback in (None, False) or found is None:
            return found
        try:
            frame = sys._getframe(1)
            values = frame.f_locals
            if not {"fn", "args", "kwargs"} <= values.keys():
                # A context manager that compiles what runs in it: no call begins here.
                return found
            if compiling.backend_of(callback) == "eager":
                return None
            self._record(frame, values["fn"], values["args"], values["kwargs"])
        except Exception as error:
            self._core.fault(f"call of a compiled function: {error}")
        return found

    def _record(self, frame: FrameType, function: Any, args: Any, kwargs: Any) -> None:
        resume = self._silence()
        if resume is None:
            return
        self._modules.outermost += 1
        say_once("compiled functions are recorded as one op each, by their inputs and outputs")
        try:
            with without_functions():
                call = self._core.before_api(self._name(function), None, args, kwargs)
            edges = None
            if call is not None:
                call.remark("compiled by torch.compile: recorded at its boundary")
                if self._gradients is not None:
                    edges = self._gradients.before(call, args, kwargs, module=True)
        except Exception:
            resume()
            raise
        profile = sys.getprofile()

        # It is called inside code that torch compiles, and would itself be compiled.
        def left(at: FrameType, event: str, value: Any) -> None:
            if event != "return" or at is not frame:
                return
            sys.setprofile(profile)
            # An exception in a profile function would be raised in the program.
            try:
                resume()
                if call is not None:
                    # The value of a call that raised is None, as if it had returned nothing.
                    with without_functions():
                        self._core.after(call, value)
                        if edges is not None and self._gradients is not None:
                            self._gradients.after(call, edges, value)
            except Exception as error:
                self._core.fault(f"call of a compiled function: {error}")

        compiling.leave_alone(left)
        sys.setprofile(left)

    def _name(self, function: Any) -> str:
        """`Compiled.layers.0.Block` for a module, `Compiled.step` for a function."""
        # A module is compiled through a wrapper of one of its methods.
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(owner, torch.nn.Module):
            return ".".join(filter(None, ("Compiled", self._modules.path(owner), type(owner).__name__)))
        return f"Compiled.{getattr(function, '__name__', type(function).__name__).strip('<>')}"
