"""Collectives of torch.distributed: their names, and when their results are ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from probe.private import autograd, dispatcher

if TYPE_CHECKING:
    from probe._core import Recorder

#: Dispatcher op -> function that the program calls. All ranks call these in the same order, so each may be waited for
#: at once; sends and receives may not.
_FUNCTIONS = {
    "allreduce_": "all_reduce",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather_into_tensor",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "gather_": "gather",
    "scatter_": "scatter",
}


def collectives() -> dict[Any, str]:
    """Returns the dispatcher's collectives, and the names of their functions."""
    if not torch.distributed.is_available():
        return {}
    found = {}
    for name, function in _FUNCTIONS.items():
        op = getattr(torch.ops.c10d, name, None)
        if op is not None:
            found[op.default] = function
    return found


def wait(result: Any) -> None:
    """Waits until a collective has written its results, which are measured next. Waiting twice is harmless."""
    work = result[-1] if isinstance(result, (tuple, list)) and result else result
    try:
        if isinstance(work, torch.ScriptObject):
            work = dispatcher.work_of(work)
        work.wait()
    except Exception:  # noqa: BLE001
        # A failure of the collective surfaces where the program waits for it.
        pass


class CollectiveMode(TorchDispatchMode):
    """Records collectives that the program calls, at the levels where other dispatcher ops are not recorded.

    Torch does not let them be intercepted as functions. Those that a backward pass starts are left to level `op`.
    """

    def __init__(self, core: Recorder) -> None:
        super().__init__()
        #: See `modes.OpMode`.
        self.on = True
        self._core = core
        self._names = {op: f"Distributed.{name}" for op, name in collectives().items()}
        #: Position and name of the arguments that an op writes to, for ops met so far.
        self._written: dict[Any, list[tuple[int, str]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs is None:
            kwargs = {}
        for kind in types:
            if kind.__name__ == "DTensor":
                return NotImplemented
        if not self.on:
            return func(*args, **kwargs)
        name = self._names.get(func)
        if name is None or autograd.current_node() is not None:
            result = func(*args, **kwargs)
            written = self._written.get(func)
            if written is None:
                written = self._written[func] = dispatcher.written(func)
            # FSDP, for one, writes in ways that torch does not count.
            for place, argument in written:
                value = args[place] if place < len(args) else kwargs.get(argument)
                if value is not None:
                    self._core.forget(value)
            return result
        tensors = _tensors(args)
        call = self._core.before_api(name, None, tensors, {})
        if call is None:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._core.raised(call, error)
            raise
        wait(result)
        for value in tensors:
            self._core.forget(value)
        self._core.after(call, tensors[0] if tensors else None)
        return result


def _tensors(args: Any) -> tuple[Any, ...]:
    """Returns the tensors of a collective as its function takes them: each device has one, where the op takes a
    list."""
    found = []
    for value in args:
        while isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        if not isinstance(value, (torch.Tensor, list, tuple)):
            break
        found.append(value)
    return tuple(found)
