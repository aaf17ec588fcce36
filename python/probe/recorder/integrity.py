"""Finds memory that changes while no op writes it, and memory that is read before anything has written it.

    recheck   what an op reads is held against what ops have written there
    poison    memory that is given out unwritten is filled with NaN; an op whose result shows them has read it

Both look at the ops of the dispatcher, at every level of recording. Below the ops of torch nothing is seen; the kernels
of extensions are looked into, since they call ops of torch to get memory.
"""

from __future__ import annotations

import bisect
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from probe.private import autograd, dispatcher
from probe.private.guards import Undisturbed
from probe.private.storages import has_memory, identity, words
from probe.recorder.mirror import UNWRITTEN, Difference, Kind, Mirrors, tensors_in
from probe.recorder.naming import describe_op, is_of_torch

#: Findings that are told and written in full.
_MOST_TOLD = 20

#: Ops that give out memory without writing it.
_GIVES = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})

#: Ops that write all of their first argument without reading it.
_OVERWRITES = frozenset({"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
                         "cauchy_", "log_normal_", "_foreach_zero_", "_foreach_copy_", "eye_", "arange_", "set_", "resize_"})  # fmt: skip

#: Ops that take facts about their arguments, not their elements.
_LOOKS = frozenset({"set_", "resize_", "resize_as_", "record_stream", "sym_size", "is_same_size", "_has_same_storage_numel"})

#: Ops that move elements without computing with them: what nobody wrote may pass through.
_MOVES = frozenset({
    "clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "index", "index_select", "gather", "repeat", "flip", "roll", "constant_pad_nd",
    "slice_scatter", "select_scatter", "index_put_", "_foreach_copy_", "masked_fill", "masked_fill_", "where", "tril", "triu", "embedding", "set_",
    "resize_", "_index_put_impl_", "split_with_sizes_copy", "unbind_copy", "index_copy_", "scatter_", "masked_select", "pin_memory", "_pin_memory",
})  # fmt: skip


class _Op(NamedTuple):
    """Facts about an op of the dispatcher."""

    name: str
    base: str
    #: Names and positions of arguments that it writes to, and those of them that it does not read.
    writes: list[tuple[int, str]]
    unread: frozenset[str]
    #: Its result is memory of an argument.
    views: bool
    #: It reads the elements of its arguments.
    reads: bool
    collective: bool
    #: Its kernel belongs to an extension.
    foreign: bool


@functools.cache
def _op(func: Any) -> _Op:
    name, writes, _, collective = describe_op(func)
    schema = dispatcher.schema_of(func)
    space, _, base = schema.name.partition("::")
    unread = {argument for place, argument in writes if base in _OVERWRITES and place == 0}
    unread |= {argument.name for argument in schema.arguments if argument.kwarg_only and argument.name in {name for _, name in writes}}
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    reads = not views and base not in _LOOKS and base not in _GIVES and not base.endswith("_like") and not base.startswith("new_")
    return _Op(name or schema.name, base, writes, frozenset(unread), views, reads, collective or "c10d" in space, not is_of_torch(space))


class Integrity:
    """The checks of one recording."""

    def __init__(self, recheck: bool, poison: bool) -> None:
        self.recheck, self.poison = recheck, poison
        self._mirrors = Mirrors()
        self._lock = threading.RLock()
        self._local = threading.local()
        #: Calls of functions by the numbers of their autograd nodes: first numbers, and the names with the last.
        self._firsts: list[int] = []
        self._calls: list[tuple[int, str]] = []
        self._numbers: dict[str, int] = {}
        self._found: dict[tuple[object, Kind], Difference] = {}
        #: Tensors that were given out unwritten, and filled.
        self.filled = 0
        self.failed: str | None = None

    def begin_step(self) -> None:
        """Forgets what earlier steps wrote: between them, much may run that is not seen."""
        self.settle()
        self._mirrors.clear()
        self._firsts.clear()
        self._calls.clear()
        self._numbers.clear()

    def settle(self) -> None:
        """Waits for the results of checks on devices."""
        with self._lock, Undisturbed():
            for found in self._mirrors.settle():
                # Later readers of the same memory see the same.
                self._found.setdefault((found.memory, found.kind), found)

    def forget(self) -> None:
        """Forgets all memory: something runs that is not seen."""
        with self._lock:
            self._mirrors.clear()

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Names the ops on this thread after the call that they run in."""
        before, self._local.name = getattr(self._local, "name", None), name
        first = autograd.next_sequence()
        try:
            yield
        finally:
            self._local.name = before
            last = autograd.next_sequence()
            if last > first:
                with self._lock:
                    place = bisect.bisect_left(self._firsts, first)
                    self._firsts.insert(place, first)
                    self._calls.insert(place, (last, name.removesuffix(".forward") + ".backward"))

    def lines(self) -> list[str]:
        """Returns what was found, a line each."""
        self.settle()
        told = [str(found) for found in list(self._found.values())[:_MOST_TOLD]]
        if len(self._found) > _MOST_TOLD:
            told.append(f"and {len(self._found) - _MOST_TOLD} more findings of --recheck and --poison")
        if self.failed is not None:
            told.append(f"memory was checked in part only: {self.failed}")
        return told

    def summary(self) -> str:
        """Returns the answer in one line."""
        did = [f"{self._mirrors.checked:,} values were held against what had been written when they were read"] if self.recheck else []
        did += [f"{self.filled:,} given out unwritten were filled with NaN"] if self.poison else []
        count = len(self._found)
        return f"{', '.join(did)}: {'nothing' if count == 0 else '1 fault' if count == 1 else f'{count} faults'} found"

    def _name(self, op: _Op) -> str:
        """Returns the name of the recorded call that runs, or else of the op."""
        node = autograd.current_node()
        if node is not None:
            number = autograd.sequence_of(node)
            place = bisect.bisect_right(self._firsts, number) - 1
            if place >= 0 and number < self._calls[place][0]:
                return self._calls[place][1]
            return f"{op.name} in {node.name().removeprefix('torch::autograd::')}"
        name: str | None = getattr(self._local, "name", None)
        if name is not None:
            return name
        number = self._numbers.get(op.name, 0)
        self._numbers[op.name] = number + 1
        return f"{op.name}.{number}.forward"

    def run(self, mode: IntegrityMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an op, with its arguments held against what was written before, and its results remembered."""
        op = _op(func)
        given = {path: tensor for path, tensor in (*tensors_in(args, "input"), *tensors_in(kwargs, "kwarg")) if has_memory(tensor)}
        with self._lock:
            name = self._name(op)
            crossing = self._crossing(op, args, kwargs)
            self._guarded(lambda: self._before(op, name, given, args, kwargs, crossing))
        result = self._called(mode, op, func, given, args, kwargs)
        with self._lock:
            self._guarded(lambda: self._after(op, name, given, args, kwargs, result, crossing))
        return result

    def _called(self, mode: IntegrityMode, op: _Op, func: Any, given: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kernel = dispatcher.kernel(func, next(iter(given.values())).device.type) if op.foreign and given else None
        if kernel is None:
            return func(*args, **kwargs)
        before, self._local.name = getattr(self._local, "name", None), self._outer(op)
        try:
            with mode:
                return kernel(*args, **kwargs)
        finally:
            self._local.name = before

    def _outer(self, op: _Op) -> str:
        """Returns the name of what runs inside the kernel of an extension: that of the extension's op."""
        return getattr(self._local, "name", None) or op.name

    def _guarded(self, act: Any) -> None:
        """Checks; stops checking if that fails, and never lets the program notice."""
        if self.failed is not None:
            return
        try:
            with Undisturbed():
                act()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self._mirrors.clear()

    def _crossing(self, op: _Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns true for a copy to another device that is not waited for."""
        if op.base == "_to_copy":
            return bool(kwargs.get("non_blocking")) and kwargs.get("device") is not None and torch.device(kwargs["device"]).type != args[0].device.type
        if op.base == "copy_":
            return bool(args[2] if len(args) > 2 else kwargs.get("non_blocking")) and args[0].device.type != args[1].device.type
        return False

    def _written(self, op: _Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        values = [args[place] if place < len(args) else kwargs.get(name) for place, name in op.writes]
        return [tensor for _, tensor in tensors_in(values, "") if has_memory(tensor)]

    def _unread(self, op: _Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
        values = [args[place] if place < len(args) else kwargs.get(name) for place, name in op.writes if name in op.unread]
        return {id(tensor) for _, tensor in tensors_in(values, "")}

    def _before(self, op: _Op, name: str, given: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], crossing: bool) -> None:
        if not self.recheck or not op.reads:
            return
        unread, node = self._unread(op, args, kwargs), autograd.current_node()
        written = {id(tensor) for tensor in self._written(op, args, kwargs)}
        for path, tensor in given.items():
            # Another device reads the source of a copy later. Memory of other owners, such as NumPy, may change.
            if id(tensor) not in unread and not crossing and not _is_of_another(tensor):
                self._mirrors.check(tensor, name, path)
                if node is not None:
                    self._mirrors.check_saved(tensor, autograd.sequence_of(node), name, path)
                elif id(tensor) not in written:
                    self._mirrors.saw(tensor)

    def _after(
        self, op: _Op, name: str, given: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, crossing: bool
    ) -> None:
        written = self._written(op, args, kwargs)
        old = {identity(tensor.untyped_storage()) for tensor in given.values()}
        new = [tensor for _, tensor in tensors_in(result, "") if has_memory(tensor) and (identity(tensor.untyped_storage()) not in old)]
        if op.collective or op.base in _LOOKS:
            for tensor in (*given.values(), *new):
                self._mirrors.forget(tensor)
            return
        if op.base in _GIVES:
            for tensor in new:
                self._gave(tensor, name)
            return
        carried = self._carried(op, name, given, args, kwargs, [*written, *new]) if self.poison and op.reads else None
        for tensor in (*written, *new):
            if op.views or (not self.recheck and carried is None and self._mirrors.gave(tensor) is None):
                continue
            if crossing and self.recheck:
                self._mirrors.arrives(tensor, args[1] if op.base == "copy_" else args[0], name)
            else:
                self._mirrors.wrote(tensor, name, carried)
        if self.recheck and autograd.current_node() is None and not op.views:
            for tensor in new:
                self._mirrors.saw(tensor)

    def _gave(self, tensor: torch.Tensor, name: str) -> None:
        """Fills memory that was given out unwritten."""
        pattern = UNWRITTEN.get(tensor.dtype)
        if not self.poison or pattern is None:
            # A kernel outside torch may write it next.
            self._mirrors.forget(tensor)
            return
        words(tensor, tensor.untyped_storage()).fill_(pattern)
        self.filled += 1
        self._mirrors.wrote(tensor, name, unwritten_by=name)

    def _carried(
        self, op: _Op, name: str, given: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], results: list[torch.Tensor]
    ) -> str | None:
        """Looks for unwritten elements among those read. Returns the op that gave them out if this op passes them on."""
        unread = self._unread(op, args, kwargs)
        read = {path: tensor for path, tensor in given.items() if id(tensor) not in unread and self._mirrors.gave(tensor) is not None}
        if op.base in _MOVES:
            return next((self._mirrors.gave(tensor) for tensor in read.values()), None)
        shows = next((tensor for tensor in results if tensor.is_floating_point() or tensor.is_complex()), None)
        for path, tensor in read.items():
            self._mirrors.check_unwritten(tensor, shows, name, path)
        return None


class IntegrityMode(TorchDispatchMode):
    """Lets an `Integrity` see the ops of a thread."""

    def __init__(self, integrity: Integrity) -> None:
        super().__init__()
        #: See `modes.OpMode`.
        self.on = True
        self._integrity = integrity

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented
        if not self.on:
            return func(*args, **(kwargs or {}))
        return self._integrity.run(self, func, args, kwargs or {})


def _is_of_another(tensor: torch.Tensor) -> bool:
    """Returns true for memory that torch did not allocate."""
    return tensor.device.type == "cpu" and not tensor.untyped_storage().resizable()

