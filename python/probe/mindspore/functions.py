"""Records functions of MindSpore, methods of tensors, and primitives that cells hold, as the program calls them; calls inside them
are not seen again.

Functions are replaced where the program finds them, while a recording is on. Compiled functions are called with MindSpore's own in
place, as they are parsed.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore import mint, ops
from probe.mindspore import arrays, graph

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.mindspore.gradients import Gradients

_MISSING = object()

#: Prefixes of names in a dump, and the namespaces whose functions have them. A function that a program has imported by itself is
#: named after the first that has it.
_PLACES = (
    ("MintFunctional", mint.nn.functional),
    ("Mint", mint),
    ("MintDistributed", mint.distributed),
    ("Functional", ops),
)

#: Functions that take functions, or compute nothing.
_NOT_FUNCTIONS = frozenset(
    "grad value_and_grad get_grad vmap vjp jvp jacfwd jacrev jet derivative recompute fori_loop while_loop scan cond switch "
    "switch_case print_ depend constexpr get_vm_impl_fn kernel custom_info_register ms_kernel set_rng_state get_rng_state manual_seed "
    "seed initial_seed is_tensor".split()
)

#: Methods of tensors that compute nothing, or belong to the framework's own work.
_NOT_METHODS = frozenset(
    "asnumpy numpy item tolist register_hook hooks remove_hook requires_grad_ data_ptr storage untyped_storage storage_offset stride "
    "size dim ndimension numel nelement element_size nbytes itemset init_data init init_check has_init flush_from_cache from_numpy "
    "wait_pipeline stub_sync data_sync assign_value assign_value_cpp offload pin_memory is_pinned retain_grad convert_bytes_to_tensor "
    "getitem_index_info setitem_index_info setitem index_of_parent_ persistent_data_from_numpy".split()
)

#: Methods that the interpreter calls for operators.
_OPERATORS = tuple(
    f"__{word}__"
    for word in (
        "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv ifloordiv mod rmod imod pow rpow "
        "matmul rmatmul imatmul neg pos abs invert and rand or ror xor rxor eq ne lt le gt ge getitem setitem"
    ).split()
)

#: Operators that write to their first operand.
_IN_PLACE = frozenset(name for name in _OPERATORS if name == "__setitem__" or (name[2] == "i" and name != "__invert__"))

#: Modules that are MindSpore's own implementation, in which nothing is replaced.
_INTERNAL = ("mindspore.ops.", "mindspore.common", "mindspore.graph", "mindspore._", "mindspore.parallel", "probe.")


class Functions:
    """The replaced functions of one recording."""

    def __init__(self, core: Recorder, record: bool, gradients: Gradients | None) -> None:
        self._core = core
        self._record = record
        self._gradients = gradients
        self._local = threading.local()
        #: Replaced functions: owner, name, replacement, and the original.
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._primitives: set[type] = set()
        #: Functions found not to return tensors.
        self._questions: set[str] = set()
        self.on = False

    def attach(self) -> None:
        """Replaces the functions."""
        if self._record and not self.on:
            if not self._replaced:
                self._gather()
            self.on = True
            self._set()

    def detach(self) -> None:
        """Puts MindSpore's own functions back."""
        if self.on:
            self.on = False
            self._unset()

    @contextmanager
    def inside(self, cell: Any) -> Iterator[None]:
        """Records functions called in a cell, whatever calls that."""
        if not self.on:
            yield
            return
        for primitive in list(cell._primitives.values()):
            if primitive is not None and type(primitive) not in self._primitives:
                self._replace_primitive(type(primitive))
        local = self._local
        before = getattr(local, "busy", False), getattr(local, "cell", None)
        local.busy, local.cell = False, cell
        try:
            yield
        finally:
            local.busy, local.cell = before

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Records nothing on this thread."""
        before, self._local.busy = getattr(self._local, "busy", False), True
        try:
            yield
        finally:
            self._local.busy = before

    def _gather(self) -> None:
        copies: dict[int, tuple[Any, Any]] = {}
        for prefix, place in _PLACES:
            for name in getattr(place, "__all__", None) or dir(place):
                function = getattr(place, name, None)
                if _is_function(name, function):
                    replacement = self._wrapped(f"{prefix}.{name}", function)
                    self._replaced.append((place, name, replacement, function))
                    copies.setdefault(id(function), (function, replacement))
        own = {id(place) for _, place in _PLACES}
        for module in list(sys.modules.values()):
            if id(module) in own or getattr(module, "__name__", "probe.").startswith(_INTERNAL):
                continue
            for name, value in list((getattr(module, "__dict__", None) or {}).items()):
                if id(value) in copies and copies[id(value)][0] is value:
                    self._replaced.append((module, name, copies[id(value)][1], value))
        kind = mindspore.Tensor
        for name in (*dir(kind), *_OPERATORS):
            method = getattr(kind, name, None)
            if _is_method(name, kind, method):
                self._replaced.append((kind, name, self._wrapped(f"Tensor.{name}", method), kind.__dict__.get(name, _MISSING)))
        for kind, name in graph.compilers():
            self._replaced.append((kind, name, self._compiled(getattr(kind, name)), kind.__dict__.get(name, _MISSING)))

    def _replace_primitive(self, kind: type) -> None:
        self._primitives.add(kind)
        original = kind.__call__  # type: ignore[operator]

        @functools.wraps(original)
        def call(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            cell = getattr(self._local, "cell", None)
            held = cell._primitives.items() if cell is not None and self.on else ()
            name = next((attribute for attribute, value in held if value is primitive), None)
            if name is None:
                return original(primitive, *args, **kwargs)
            return self._call(f"Primitive.{name}.{kind.__name__}", functools.partial(original, primitive), args, kwargs)

        entry = kind, "__call__", call, kind.__dict__.get("__call__", _MISSING)
        self._replaced.append(entry)
        setattr(*entry[:3])

    def _set(self) -> None:
        for owner, name, replacement, _ in self._replaced:
            setattr(owner, name, replacement)

    def _unset(self) -> None:
        for owner, name, replacement, original in reversed(self._replaced):
            # Something else may have replaced it since, which is then not ours to remove.
            if owner.__dict__.get(name) is replacement:
                if original is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, function, args, kwargs)

        return call

    def _compiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> Any:
                was_on = self.on
                self._unset()
                try:
                    return original(executor, *args, **kwargs)
                finally:
                    if was_on and self.on:
                        self._set()

            return self._call(f"Jit.{getattr(executor.fn, '__name__', 'function')}", run, args, kwargs)

        return call

    def _call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        local = self._local
        if not self.on or getattr(local, "busy", False) or name in self._questions:
            return function(*args, **kwargs)
        local.busy = True
        try:
            call = self._core.before_api(name, None, *arrays.of((args, kwargs)))
            if call is None:
                return function(*args, **kwargs)
            edges = self._before(args, kwargs, name)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                self._core.raised(call, error)
                raise
            written = args[0] if result is None and args and _writes(name) else result
            if not arrays.tensors(written):
                # A query about a tensor, not a computation.
                self._core.withdraw(call)
                self._questions.add(name)
                return result
            self._core.after(call, arrays.of(written))
            if edges is not None and self._gradients is not None:
                try:
                    self._gradients.after(call, edges, result)
                except Exception as error:
                    self._core.fault(f"gradients of {name}: {error}")
            return result
        finally:
            local.busy = False

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
        try:
            return self._gradients.before(args, kwargs) if self._gradients is not None else None
        except Exception as error:
            self._core.fault(f"gradients of {name}: {error}")
            return None


def _is_function(name: str, value: Any) -> bool:
    public = name[:1].islower() and name not in _NOT_FUNCTIONS
    return public and callable(value) and not isinstance(value, (type, ops.Primitive)) and hasattr(value, "__name__")


def _is_method(name: str, kind: type, value: Any) -> bool:
    if name in _NOT_METHODS or name.startswith(("is_", "set_", "get_")) or (name.startswith("_") and name not in _OPERATORS):
        return False
    held = next((each.__dict__[name] for each in kind.__mro__ if name in each.__dict__), None)
    # A tensor without an operator of its own has that of every object, which computes nothing.
    return callable(value) and not isinstance(value, type) and not isinstance(held, (staticmethod, classmethod, property)) and held is not object.__dict__.get(name)


def _writes(name: str) -> bool:
    """Returns true if a function writes to its first argument, judged by its name."""
    last = name.rpartition(".")[2]
    return last in _IN_PLACE or (last.endswith("_") and not last.endswith("__"))
