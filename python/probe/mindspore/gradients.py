"""Backward values: the gradients of a call's own inputs and outputs, and those of parameters.

As in PyTorch's recordings, the gradient of an output is seen before the node that created the output runs, and the gradient of an
input is the call's own contribution to it, taken from the nodes inside the call whose edges leave it. Hooks only observe.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from probe.mindspore import arrays, graph

if TYPE_CHECKING:
    from probe._core import Call, Recorder

#: A call with more inner nodes than this has no gradients recorded for its inputs; its parts have.
_MAX_NODES = 20_000


class Edges:
    """Positions of a call's inputs in the autograd graph before it runs."""

    __slots__ = ("nodes", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        #: (node, number of its output) -> slot.
        self.nodes: dict[tuple[int, int], str] = {}


class Gradients:
    """Watches the backward passes of recorded calls."""

    def __init__(self, core: Recorder) -> None:
        self._core = core
        self._lock = threading.Lock()
        #: Records of which some gradients have arrived, by identity.
        self._open: dict[int, _Tap] = {}
        self._parameters: list[Any] = []

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any], module: bool = False) -> Edges | None:
        """Notes where the inputs of a call come from. None if nothing can flow back through it.

        A cell may contain parameters, so gradients flow into it even if none leave it.
        """
        sequence = graph.next_sequence()
        if sequence is None:
            return None
        edges = Edges(sequence)
        for path, tensor in [*arrays.tensors(args), *arrays.tensors(kwargs)]:
            node = graph.node_of(tensor) if graph.is_differentiable(tensor) else None
            if node is not None:
                edges.nodes.setdefault(graph.key_of(node, graph.number_of(tensor)), path)
        return edges if module or edges.nodes else None

    def after(self, call: Call, edges: Edges, result: Any) -> None:
        """Watches the gradients that flow into a call's outputs and out of its inputs."""
        tap = _Tap(self, _backward(call.name), call.scope, call.stack)
        begins: dict[int, Any] = {}
        for path, tensor in arrays.tensors(result if isinstance(result, (tuple, list)) else (result,)):
            node = graph.node_of(tensor)
            if node is None or graph.key_of(node, graph.number_of(tensor)) in edges.nodes or graph.sequence_of(node) is None:
                continue
            tap.expect("input", path)
            node.register_prehook(_Arrived(tap, [(graph.number_of(tensor), f"input.{path}")]))
            begins[graph.key_of(node, 0)[0]] = node
        if begins and edges.nodes:
            self._watch_inputs(tap, edges, begins)

    def _watch_inputs(self, tap: _Tap, edges: Edges, seen: dict[int, Any]) -> None:
        stack = list(seen.values())
        leaving: list[tuple[Any, list[tuple[int, str]]]] = []
        while stack and len(seen) <= _MAX_NODES:
            node = stack.pop()
            found = []
            for index, (other, number) in enumerate(node.next_functions):
                if other is None:
                    continue
                key = graph.key_of(other, number)
                path = edges.nodes.get(key)
                if path is not None:
                    found.append((index, f"output.{path}"))
                    tap.expect("output", path)
                elif (sequence := graph.sequence_of(other)) is not None and sequence > edges.sequence and key[0] not in seen:
                    seen[key[0]] = other
                    stack.append(other)
            if found:
                leaving.append((node, found))
        for node, found in leaving:
            node.register_hook(_Arrived(tap, found))

    def watch_parameters(self, stem: str, parameters: dict[str, Any]) -> None:
        """Records the gradients of a cell's own parameters each time all of them have arrived."""
        own = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        group = _Group(self, stem, list(own))
        for name, parameter in own.items():
            self._parameters.append(parameter.register_hook(_ParameterHook(group, name)))

    def forget_parameters(self) -> None:
        """Removes all hooks from the parameters."""
        for handle in self._parameters:
            handle.remove()
        self._parameters.clear()

    def flush(self, cut: bool = False) -> None:
        """Files the gradients of calls that will not receive all of theirs; with `cut`, because the program has ended."""
        with self._lock:
            taps, self._open = list(self._open.values()), {}
        for tap in taps:
            tap.finish(cut)


class _Tap:
    """Backward record of one call."""

    def __init__(self, gradients: Gradients, name: str, scope: str | None, stack: int | None) -> None:
        self._gradients = gradients
        self._identity = (name, scope, stack)
        #: Paths that are to come, and the number of nodes that contribute to each.
        self._missing: dict[str, int] = {}
        self._sums: dict[str, Any] = {}
        self._call: Call | None = None
        self._opened = False

    def expect(self, side: str, path: str) -> None:
        """Adds a gradient that will arrive."""
        key = f"{side}.{path}"
        self._missing[key] = self._missing.get(key, 0) + 1

    def arrived(self, path: str, gradient: Any) -> None:
        """Adds a gradient, or the contribution of one node to it; the last one files their sum."""
        left = self._missing.get(path, 1) - 1
        total = self._sums.pop(path, None)
        if gradient is not None:
            total = gradient if total is None else graph.sum_of(total, gradient)
        if left > 0:
            self._missing[path], self._sums[path] = left, total
            return
        self._missing.pop(path, None)
        self._add(path, total)

    def _add(self, path: str, gradient: Any) -> None:
        core = self._gradients._core
        if not self._opened:
            self._opened = True
            self._call = core.open(*self._identity)
            with self._gradients._lock:
                self._gradients._open[id(self)] = self
        if self._call is not None and gradient is not None:
            core.add(self._call, self.side(path), [(path, arrays.of(gradient))])
        if not self._missing:
            self.finish()

    @staticmethod
    def side(path: str) -> str:
        """Returns the side of an op to which a path belongs."""
        return path.partition(".")[0]

    def finish(self, cut: bool = False) -> None:
        """Files the record. A second pass through the same graph is not recorded again: its name would be taken."""
        with self._gradients._lock:
            self._gradients._open.pop(id(self), None)
        call, self._call = self._call, None
        if call is not None:
            (self._gradients._core.raised if cut else self._gradients._core.finish)(call)


class _Group(_Tap):
    """The gradients of one cell's own parameters, in each backward pass anew."""

    def __init__(self, gradients: Gradients, stem: str, names: list[str]) -> None:
        super().__init__(gradients, "", None, None)
        self._stem, self._names = f"{stem}.parameters_grad", [f"grad.{name}" for name in names]
        self.finish()

    @staticmethod
    def side(path: str) -> str:
        """Returns the side of an op to which a path belongs."""
        return "gradient"

    def arrived(self, path: str, gradient: Any) -> None:
        """Adds the gradient of a parameter."""
        if not self._opened:
            self._identity = (f"{self._stem}.{self._gradients._core.number(self._stem)}", None, None)
        super().arrived(path, gradient)

    def finish(self, cut: bool = False) -> None:
        """Files the record, and waits for the next pass."""
        super().finish(cut)
        self._opened, self._missing = False, dict.fromkeys(self._names, 1)


class _Arrived:
    """Sees gradients that flow into a node, or that it has computed."""

    __slots__ = ("_found", "_tap")

    def __init__(self, tap: _Tap, found: list[tuple[int, str]]) -> None:
        self._tap, self._found = tap, found

    def __call__(self, gradients: tuple[Any, ...], *_: Any) -> None:
        try:
            for number, path in self._found:
                self._tap.arrived(path, gradients[number])
        except Exception as error:
            self._tap._gradients._core.fault(f"gradient: {error}")


class _ParameterHook:
    """Sees the gradient of a parameter, and returns it as it is."""

    __slots__ = ("_group", "_name", "__weakref__")

    def __init__(self, group: _Group, name: str) -> None:
        self._group, self._name = group, name

    def __call__(self, gradient: Any) -> Any:
        try:
            self._group.arrived(f"grad.{self._name}", gradient)
        except Exception as error:
            self._group._gradients._core.fault(f"gradient of {self._name}: {error}")
        return gradient


def _backward(name: str) -> str:
    return name.replace(".forward", ".backward") if name.startswith("Cell.") else name.removesuffix("forward") + "backward"
