"""Backward values: the gradients of a call's own inputs and outputs, and those of parameters.

The gradient of an output is seen before the node that created the output runs. The gradient of an input is the call's
own contribution to it, taken from the nodes *inside* the call whose edges leave it. So a tensor read by several calls
has a gradient for each of them, and the graph is not changed: hooks only observe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from probe.private import autograd, tensors

if TYPE_CHECKING:
    from probe._core import Call, Recorder

#: A call with more inner nodes than this has no gradients recorded for its inputs; its parts have.
_MAX_NODES = 20_000

#: Nodes from this number on are not numbered by creation: they accumulate the gradients of leaves.
_NO_SEQUENCE = 1 << 62

_Node = Any


class Edges:
    """Positions of a call's inputs in the autograd graph before it runs."""

    __slots__ = ("leaves", "nodes", "sequence")

    def __init__(self) -> None:
        self.sequence: int = autograd.next_sequence()
        #: (node, number of its output) -> slots.
        self.nodes: dict[tuple[_Node, int], list[str]] = {}
        #: identity of a leaf tensor -> slots.
        self.leaves: dict[int, list[str]] = {}


class Gradients:
    """Watches the backward passes of recorded calls."""

    def __init__(self, core: Recorder) -> None:
        self._core = core
        self._lock = threading.Lock()
        #: Backward pass -> calls for which some gradients have arrived, by identity.
        self._started: dict[int, dict[int, _Tap | _ParameterGroup]] = {}
        self._parameters: list[Any] = []

    def before(self, call: Call, args: Any, kwargs: Any, module: bool = False) -> Edges | None:
        """Notes where the inputs of a call come from. None if nothing can flow back through it.

        A module may contain parameters, so gradients flow into it even if none leave it.
        """
        try:
            return self._stand(call, args, kwargs, module)
        except Exception as error:
            self._core.fault(f"gradients of {call.name}: {error}")
            return None

    def _stand(self, call: Call, args: Any, kwargs: Any, module: bool) -> Edges | None:
        if not torch.is_grad_enabled() or call.name.endswith(".backward"):
            return None
        edges = Edges() if module else None
        for path, tensor in _tensors(args, kwargs):
            if tensor.requires_grad:
                if edges is None:
                    edges = Edges()
                node = tensor.grad_fn
                if node is None:
                    edges.leaves.setdefault(id(tensor), []).append(path)
                else:
                    edges.nodes.setdefault((node, tensor.output_nr), []).append(path)
        return edges

    def after(self, call: Call, edges: Edges, result: Any) -> None:
        """Watches the gradients that flow into a call's outputs and out of its inputs."""
        try:
            self._watch(call, edges, result)
        except Exception as error:
            self._core.fault(f"gradients of {call.name}: {error}")

    def _watch(self, call: Call, edges: Edges, result: Any) -> None:
        outputs = [
            (path, node, tensor.output_nr)
            for path, tensor in _tensors(result if isinstance(result, (tuple, list)) else (result,), {})
            if (node := tensor.grad_fn) is not None
        ]
        if not outputs:
            return
        name = call.name.replace(".forward", ".backward") if call.name.startswith("Module.") else _backward(call.name)
        tap = _Tap(self, name, call.scope, call.stack, call.recomputed)
        # A node that is both an input and an output of the call did nothing in it.
        given, leaves, first = edges.nodes, edges.leaves, edges.sequence
        # Each node once: all results of one function share a node.
        begins: dict[_Node, None] = {}
        for path, node, number in outputs:
            if (node, number) in given:
                continue
            tap.expect(path)
            node.register_prehook(_OutputHook(tap, path, number))
            begins[node] = None
        stack = list(begins)
        if not stack:
            return
        if not given and not leaves:
            # No gradient leaves the call, however large it is inside.
            return
        seen = set(stack)
        contributions: dict[_Node, list[tuple[int, str]]] = {}
        while stack:
            node = stack.pop()
            for index, (other, number) in enumerate(node.next_functions):
                if other is None:
                    continue
                paths = given.get((other, number))
                if paths is None:
                    sequence = autograd.sequence_of(other)
                    if sequence < _NO_SEQUENCE:
                        if sequence >= first and other not in seen:
                            seen.add(other)
                            stack.append(other)
                        continue
                    if not leaves or other.name() != "torch::autograd::AccumulateGrad":
                        continue
                    paths = leaves.get(id(other.variable))
                if paths:
                    contributions.setdefault(node, []).append((index, paths[0]))
            if len(seen) > _MAX_NODES:
                break
        for node, found in contributions.items():
            for _, path in found:
                tap.expect_part(path)
        for node, found in contributions.items():
            node.register_hook(_InputHook(tap, found))

    def watch_parameters(self, stem: str, module: torch.nn.Module) -> None:
        """Records the gradients of a module's own parameters each time all of them have arrived."""
        own = {name: p for name, p in module._parameters.items() if p is not None and p.requires_grad}
        if own:
            group = _ParameterGroup(self, stem, list(own))
            for name, parameter in own.items():
                if parameter.is_leaf:
                    hook = parameter.register_post_accumulate_grad_hook(_ParameterHook(group, name))
                    self._parameters.append(hook)

    def forget_parameters(self) -> None:
        """Removes all hooks from the parameters."""
        for handle in self._parameters:
            handle.remove()
        self._parameters.clear()

    def flush(self, cut: bool = False) -> None:
        """Files the gradients of calls that will not receive all of theirs; with `cut`, because the program has
        ended."""
        with self._lock:
            started, self._started = self._started, {}
        for taps in started.values():
            for tap in taps.values():
                tap.finish(cut)

    def _start(self, tap: _Tap | _ParameterGroup) -> int:
        """Notes that a first gradient of `tap` has arrived: any still missing at the end of this backward pass will
        not come.

        Returns the pass; other threads may be in different ones.
        """
        backward: int = autograd.current_pass()
        with self._lock:
            first = backward not in self._started
            self._started.setdefault(backward, {})[id(tap)] = tap
        if first:
            try:
                autograd.at_end_of_pass(lambda: self._end_of_pass(backward))
            except RuntimeError:
                # Not inside a backward pass: the end of the step files it.
                pass
        return backward

    def _end_of_pass(self, backward: int) -> None:
        try:
            with self._lock:
                taps = self._started.pop(backward, {})
            for tap in taps.values():
                tap.finish()
        except Exception as error:
            self._core.fault(f"gradients: {error}")

    def _done(self, tap: _Tap | _ParameterGroup, backward: int) -> None:
        with self._lock:
            self._started.get(backward, {}).pop(id(tap), None)


class _Tap:
    """Backward record of one call."""

    __slots__ = ("_backward", "_call", "_gradients", "_identity", "_missing", "_opened", "_parts", "_sums")

    def __init__(self, gradients: Gradients, name: str, scope: str | None, stack: int | None, recomputed: bool) -> None:
        self._gradients = gradients
        self._identity = (name, scope, stack, recomputed)
        self._missing: set[str] = set()
        self._parts: dict[str, int] = {}
        self._sums: dict[str, tuple[int, torch.Tensor | None]] = {}
        self._call: Call | None = None
        self._opened = False
        self._backward = -1

    def expect(self, path: str) -> None:
        self._missing.add(f"input.{path}")

    def expect_part(self, path: str) -> None:
        self._missing.add(f"output.{path}")
        self._parts[path] = self._parts.get(path, 0) + 1

    def output_gradient(self, path: str, gradient: torch.Tensor | None) -> None:
        self._add("input", f"input.{path}", gradient)

    def input_part(self, path: str, gradient: torch.Tensor | None) -> None:
        """Adds the contribution of one node; the last one files their sum."""
        left = self._parts.get(path, 1)
        if left > 1:
            seen, total = self._sums.get(path, (0, None))
            if gradient is not None:
                total = gradient if total is None else tensors.sum_of(total, gradient)
            if seen + 1 < left:
                self._sums[path] = (seen + 1, total)
                return
            self._sums.pop(path, None)
            gradient = total
        self._add("output", f"output.{path}", gradient)

    def _add(self, side: str, path: str, gradient: torch.Tensor | None) -> None:
        core = self._gradients._core
        if not self._opened:
            self._opened = True
            name, scope, stack, recomputed = self._identity
            self._call = core.open(name, scope, stack, recomputed)
            self._backward = self._gradients._start(self)
        if self._call is not None:
            core.add(self._call, side, [(path, gradient)])
        self._missing.discard(path)
        if not self._missing:
            self._gradients._done(self, self._backward)
            self.finish()

    def finish(self, cut: bool = False) -> None:
        """Files the record. A second pass through the same graph is not recorded again: its name would be taken."""
        if self._call is not None:
            _file(self._gradients._core, self._call, cut)
            self._call = None


class _OutputHook:
    """Sees the gradients that are about to flow into a node."""

    __slots__ = ("_number", "_path", "_tap")

    def __init__(self, tap: _Tap, path: str, number: int) -> None:
        self._tap, self._path, self._number = tap, path, number

    def __call__(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        try:
            self._tap.output_gradient(self._path, gradients[self._number])
        except Exception as error:
            self._tap._gradients._core.fault(f"gradient: {error}")


class _InputHook:
    """Sees the gradients that a node has computed."""

    __slots__ = ("_found", "_tap")

    def __init__(self, tap: _Tap, found: list[tuple[int, str]]) -> None:
        self._tap, self._found = tap, found

    def __call__(self, computed: tuple[torch.Tensor | None, ...], given: Any) -> None:
        try:
            for index, path in self._found:
                self._tap.input_part(path, computed[index])
        except Exception as error:
            self._tap._gradients._core.fault(f"gradient: {error}")


class _ParameterGroup:
    """The gradients of one module's own parameters."""

    def __init__(self, gradients: Gradients, stem: str, names: list[str]) -> None:
        self._gradients, self._stem, self._names = gradients, stem, names
        self._missing: set[str] = set(names)
        self._call: Call | None = None
        self._backward = -1

    def arrived(self, name: str, parameter: torch.nn.Parameter) -> None:
        core = self._gradients._core
        if self._call is None:
            number = core.number(f"{self._stem}.parameters_grad")
            self._call = core.open(f"{self._stem}.parameters_grad.{number}", None, None, False)
            self._backward = self._gradients._start(self)
        if self._call is not None:
            core.add(self._call, "gradient", [(f"grad.{name}", parameter.grad)])
        self._missing.discard(name)
        if not self._missing:
            self._gradients._done(self, self._backward)
            self.finish()

    def finish(self, cut: bool = False) -> None:
        if self._call is not None:
            _file(self._gradients._core, self._call, cut)
        self._call = None
        self._missing = set(self._names)


class _ParameterHook:
    """Runs when a gradient has been added to a parameter. Copies of the parameter carry an inert hook."""

    def __init__(self, group: _ParameterGroup | None, name: str) -> None:
        self._group, self._name = group, name

    def __call__(self, parameter: torch.nn.Parameter) -> None:
        if self._group is not None:
            try:
                self._group.arrived(self._name, parameter)
            except Exception as error:
                self._group._gradients._core.fault(f"gradient of {self._name}: {error}")

    def __reduce__(self) -> tuple[Callable[..., _ParameterHook], tuple[None, str]]:
        return _ParameterHook, (None, self._name)


def _file(core: Recorder, call: Call, cut: bool) -> None:
    """Files a record, which is incomplete if the program has ended."""
    if cut:
        core.raised(call)
    else:
        core.finish(call)


def _backward(name: str) -> str:
    return name.removesuffix("forward") + "backward"


def _tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors in positional and keyword arguments, with their slot paths."""
    for index, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            yield str(index), value
        elif isinstance(value, (tuple, list, dict)):
            yield from _within(str(index), value, 4)
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (tuple, list, dict)):
            yield from _within(name, value, 4)


def _within(path: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, torch.Tensor):
            yield f"{path}.{key}", item
        elif depth and isinstance(item, (tuple, list, dict)):
            yield from _within(f"{path}.{key}", item, depth - 1)
