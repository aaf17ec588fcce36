"""Calls of a dump, rebuilt: arguments as they were, results as recorded."""

from __future__ import annotations

import ast
import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from probe import _core
from probe.nearest import suggestion
from probe.patterns import api_of

#: Memory between the elements of a strided tensor is rebuilt up to this many elements for each of its own: strides come from a file.
_MAX_SPREAD = 64

Slot = dict[str, Any]


class NotReplayed(Exception):
    """A call cannot be run again; the text says why."""


@dataclass
class Call:
    """One recorded call."""

    name: str
    #: Positional and keyword arguments. Those of the forward call, for a backward.
    args: list[Any]
    kwargs: dict[str, Any]
    #: Recorded results by path; of a backward, gradients by the path of the argument they belong to.
    results: dict[str, torch.Tensor]
    #: Gradients that arrived at the results, by path; none for a forward call.
    gradients: dict[str, torch.Tensor] | None = None
    #: Parameters of a module, by name.
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    #: Sums products: matrix products, convolutions, attention and their gradients.
    multiplies: bool = False
    #: Call stack, innermost frame first.
    stack: list[str] = field(default_factory=list)
    #: Arguments that autograd tracked, by path; empty where the dump does not tell.
    tracked: frozenset[str] = frozenset()
    #: The results of a backward are what the node behind the result passes on, as the older tool records them.
    of_last_node: bool = False
    #: Results of the forward call, of a backward.
    made: dict[str, torch.Tensor] = field(default_factory=dict)
    #: Of the gradients of a module's parameters: the backward calls that they come from, and what lay in them before.
    passes: list[Call] = field(default_factory=list)
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    #: A module with its options, once they are known.
    rebuilt: Any = field(default=None, repr=False, compare=False)
    #: Device that its results lay on (`npu:0`); None if the dump does not tell.
    device: str | None = None

    @property
    def api(self) -> str:
        """The function: `Functional.gelu`; of a module its class."""
        return self.name.split(".")[-3] if self.is_module else api_of(self.name)

    @property
    def base(self) -> str:
        """Name of the function without its namespace."""
        return self.api.rpartition(".")[2]

    @property
    def is_module(self) -> bool:
        return self.name.startswith("Module.")

    @property
    def is_backward(self) -> bool:
        return self.gradients is not None

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything the call read, by path."""
        if self.passes:
            every = {f"{number}.{path}": tensor for number, each in enumerate(self.passes) for path, tensor in each.tensors().items()}
            return {**every, **{f"before.{name}": tensor for name, tensor in self.before.items()}}
        return {
            **{f"input.{path}": tensor for path, tensor in leaves(self.args).items()},
            **{f"kwarg.{path}": tensor for path, tensor in leaves(self.kwargs).items()},
            **{f"parameter.{name}": tensor for name, tensor in self.parameters.items()},
            **{f"gradient.{path}": tensor for path, tensor in (self.gradients or {}).items()},
        }


class Part:
    """The calls of one rank in one step."""

    def __init__(self, core: _core.Part, step: int, rank: int, of_last_node: bool, unread: dict[str, None]) -> None:
        """Tensors that turn out to be damaged are added to `unread`, a line each."""
        self._of_last_node, self._unread = of_last_node, unread
        self.step, self.rank, self.level, self.faults = step, rank, core.level, core.faults
        self._core = core
        self.names: list[str] = core.ops
        self._index: dict[str, int] = {}
        for index, name in enumerate(self.names):
            self._index.setdefault(name, index)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def call(self, name: str, drawn: bool = False) -> Call:
        """Rebuilds a call; if `drawn`, elements that were not recorded are drawn within the recorded range. Raises NotReplayed."""
        index = self._index.get(name)
        if index is None:
            raise NotReplayed(f"no op {name!r} in step {self.step} rank {self.rank}; {suggestion(name, self.names)}")
        _, raised, multiplies = self._core.facts(index)
        if raised:
            raise NotReplayed("it ended in an exception")
        slots = self._core.slots(index)
        given, parameters, results = self._values(slots, drawn)
        device = next((slot["device"] for slot in slots if slot["kind"] == "tensor" and slot["side"] == "output"), None)
        if (gradients_of := parameters_of(name)) is not None:
            return self._of_parameters(name, gradients_of, results, device, drawn)
        forward = forward_of(name)
        if forward is None:
            args, kwargs = _list(given.get("input", {})), _named(given.get("kwarg", {}))
            tracked = frozenset(slot["path"].partition(".")[2] for slot in slots if slot["side"] == "input" and slot.get("requires_grad"))
            stack = self._core.stack(index)
            if name.startswith("Module.") and name.split(".")[-3].startswith("Parametrized"):
                parameters.update(self._parametrized(name))
            return Call(name, args, kwargs, results, None, parameters, multiplies, stack, tracked, self._of_last_node, device=device)
        if forward not in self._index:
            raise NotReplayed(f"its forward call {forward} was not recorded, which has the inputs")
        before = self.call(forward, drawn)
        gradients = leaves(_list(given.get("input", {})))
        return replace(before, name=name, results=results, made=before.results, gradients=gradients, multiplies=multiplies, device=device)

    def _parametrized(self, name: str) -> dict[str, torch.Tensor]:
        """Returns what the parametrizations of a module (weight norm, spectral norm) made for a call of it, by the name of the parameter. Raises
        NotReplayed where that was not recorded."""
        module, number = name.rpartition(".")[0].split("."), name.rpartition(".")[2]
        inside = ".".join(module[:-2]) + ".parametrizations."
        made: dict[str, torch.Tensor] = {}
        for first in (each for each in self.names if each.startswith(inside) and each.endswith(".ParametrizationList.forward.0")):
            # With `parametrize.cached()` one call serves them all.
            call = next(each for each in (first[:-1] + number, first) if each in self._index)
            for value in self._values(self._core.slots(self._index[call]), False)[2].values():
                made[first.removeprefix(inside).partition(".")[0]] = value
        if not made:
            raise NotReplayed("the parameters that its parametrizations make were not recorded")
        return made

    def _of_parameters(self, name: str, module: str, results: dict[str, torch.Tensor], device: str | None, drawn: bool) -> Call:
        """Rebuilds the gradients of a module's parameters: those of its backward calls, added to what was recorded before."""
        records = [each for each in self.names if parameters_of(each) == module]
        numbers = sorted(int(each.rpartition(".")[2]) for each in self.names if each.startswith(f"{module}.backward.") and each.rpartition(".")[2].isdecimal())
        calls = [f"{module}.backward.{number}" for number in numbers if f"{module}.backward.{number}" in self._index]
        if not calls or len(calls) % len(records):
            raise NotReplayed("the backward calls of its module were not recorded, which have the gradients that arrived")
        # Passes are alike: each calls the module as often as the others. Within a pass, the order of the records says nothing.
        number, each_pass = records.index(name), len(calls) // len(records)
        calls = calls[number * each_pass:(number + 1) * each_pass]
        before = self._values(self._core.slots(self._index[records[number - 1]]), drawn)[2] if number else {}
        passes = [self.call(each, drawn) for each in calls]
        first = passes[0]
        return replace(first, name=name, results=results, passes=passes, before=before, multiplies=first.multiplies, device=device or first.device)

    def multiplies(self, name: str) -> bool:
        """Returns true for calls that sum products."""
        _, raised, multiplies = self._core.facts(self._index[name])
        return multiplies and not raised

    def tensors(self, name: str, sides: Sequence[str]) -> dict[str, Callable[[], torch.Tensor]]:
        """Returns what reads the tensors of an op, by the path of their slot. Reading raises NotReplayed where elements were not recorded."""
        slots = [slot for slot in self._core.slots(self._index[name]) if slot["kind"] == "tensor" and slot["path"].partition(".")[0] in sides]
        return {slot["path"]: functools.partial(self._tensor, slot, {}, False) for slot in slots}

    def _values(self, slots: list[Slot], drawn: bool) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns arguments as nested dicts by path, parameters and results of an op."""
        seen: dict[tuple[Any, ...], torch.Tensor] = {}
        given: dict[str, Any] = {}
        parameters: dict[str, torch.Tensor] = {}
        results: dict[str, torch.Tensor] = {}
        for slot in slots:
            head, *path = slot["path"].split(".")
            if slot["side"] in ("output", "gradient"):
                if slot["kind"] == "tensor":
                    results[".".join(path)] = self._tensor(slot, {}, drawn)
            elif slot["side"] == "parameter":
                parameters[".".join(path)] = self._tensor(slot, seen, drawn)
            elif path:
                node = given.setdefault(head, {})
                for part in path[:-1]:
                    node = node.setdefault(part, {})
                    if not isinstance(node, dict):
                        raise NotReplayed(f"{slot['path']} lies in a value")
                node[path[-1]] = self._tensor(slot, seen, drawn) if slot["kind"] == "tensor" else plain(slot)
        return given, parameters, results

    def _tensor(self, slot: Slot, seen: dict[tuple[Any, ...], torch.Tensor], drawn: bool) -> torch.Tensor:
        """Reads a tensor; slots that held the same one share it."""
        if slot["key"] is None:
            if 0 in slot["shape"] and (dtype := _dtype(slot["dtype"])) is not None:
                return torch.empty(slot["shape"], dtype=dtype)
            if drawn and (made := _drawn(slot)) is not None:
                return made
            raise NotReplayed(f"the elements of {slot['path']} were not recorded; record this op with task tensor")
        if slot["placement"]:
            raise NotReplayed(f"{slot['path']} is a distributed tensor")
        same = (slot["identity"], tuple(slot["shape"]), tuple(slot["strides"] or ()))
        if slot["identity"] is not None and same in seen:
            return seen[same]
        try:
            name, shape, data = self._core.tensor(slot["key"])
        except KeyError as error:
            self._unread[f"step {self.step} rank {self.rank}: {error.args[0]}"] = None
            raise NotReplayed(f"{slot['path']} cannot be read: {error.args[0]}") from None
        dtype = _dtype(name)
        if dtype is None:
            raise NotReplayed(f"this torch has no type {name}, of {slot['path']}")
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        seen[same] = strided(flat.reshape(shape), slot["strides"])
        return seen[same]


class Recording:
    """An opened dump."""

    def __init__(self, path: str) -> None:
        """Raises ValueError if `path` is no dump."""
        self.path = path
        self._core = _core.Dump(path)
        self.format = self._core.format
        self._faults: dict[str, None] = dict.fromkeys(self._core.faults)
        self.environment = dict(self._core.environment)
        self.places: list[tuple[int, int]] = self._core.parts

    @property
    def faults(self) -> list[str]:
        """What could not be read so far, a line each: a tensor is read when its call is rebuilt."""
        return list(self._faults)

    def parts(self, steps: Sequence[range] = (), ranks: Sequence[range] = ()) -> Iterator[Part]:
        """Reads the parts of these steps and ranks; all where none are given. Those that cannot be read become faults."""
        for index, (step, rank) in enumerate(self.places):
            if _chosen(step, steps) and _chosen(rank, ranks):
                try:
                    part = Part(self._core.read(index), step, rank, self.format == "msprobe dump", self._faults)
                except ValueError as error:
                    self._faults[str(error)] = None
                    continue
                self._faults.update(dict.fromkeys(part.faults))
                yield part


#: Most elements that are drawn for one tensor: shapes come from a file.
_MAX_DRAWN = 1 << 26


def _drawn(slot: Slot) -> torch.Tensor | None:
    """Draws a tensor of the recorded type and shape within its recorded range; None where that is not known."""
    dtype, (low, high) = _dtype(slot["dtype"]), slot["range"]
    if dtype is None or dtype.is_complex or math.prod(slot["shape"]) > _MAX_DRAWN or low is None or high is None or not math.isfinite(high - low):
        return None
    generator = torch.Generator().manual_seed(math.prod(slot["shape"]) % 1000003)
    unit = torch.rand(slot["shape"], generator=generator, dtype=torch.float64)
    value = low + (high - low) * unit
    return (value if dtype.is_floating_point else value.round()).to(dtype)


def _chosen(number: int, among: Sequence[range]) -> bool:
    return not among or any(number in numbers for numbers in among)


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    """Returns the tensors in nested lists and dicts, by path."""
    if isinstance(value, torch.Tensor):
        return {".".join(path): value}
    items = enumerate(value) if isinstance(value, (list, tuple)) else value.items() if isinstance(value, dict) else ()
    return {name: tensor for key, item in items for name, tensor in leaves(item, (*path, str(key))).items()}


def strided(tensor: torch.Tensor, strides: list[int] | None) -> torch.Tensor:
    """Returns the row-major `tensor` with these strides, in memory of its own; as it is where the strides ask for far more memory than
    its elements take."""
    if strides is None or len(strides) != tensor.dim() or tensor.numel() == 0 or tuple(strides) == tensor.stride():
        return tensor
    if any(step < 0 for step in strides):
        return tensor
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, strides))
    if extent > _MAX_SPREAD * tensor.numel():
        return tensor
    memory = torch.zeros(extent, dtype=tensor.dtype)
    made = memory.as_strided(tensor.shape, strides)
    # Elements that share memory, as in an expanded tensor, are equal: one of them is written.
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)
    if not _is_dense(made[once].shape, strides):
        return tensor
    made[once].copy_(tensor[once])
    return made


def _is_dense(shape: torch.Size, strides: list[int]) -> bool:
    """Returns true if no two elements share memory, as far as sorted strides prove it."""
    end = 0
    for step, size in sorted((step, size) for size, step in zip(shape, strides) if size > 1):
        if step <= end:
            return False
        end += (size - 1) * step
    return True


def plain(slot: Slot) -> Any:
    """Returns a recorded value that is no tensor. Raises NotReplayed where only a description was recorded."""
    kind = slot["kind"]
    if kind == "none":
        return None
    if kind in ("number", "text"):
        return slot["value"]
    if kind == "device":
        return torch.device("cpu")
    if kind == "printed":
        value = _printed(slot["type"], slot["value"])
        if value is not NotImplemented:
            return value
    if slot["path"] == "kwarg.generator":
        raise NotReplayed("it draws random numbers, from a generator that it was given")
    raise NotReplayed(f"{slot['path']} was not recorded in full: {slot.get('type', kind)}")


def _printed(kind: str, text: str) -> Any:
    """Reads the printed form of a value; NotImplemented where it has none that can be read back."""
    kind = kind.removeprefix("torch.")
    if kind in ("dtype", "memory_format", "layout"):
        found = getattr(torch, text.removeprefix("torch."), None)
        return found if isinstance(found, (torch.dtype, torch.memory_format, torch.layout)) else NotImplemented
    if kind == "ellipsis" or text == "Ellipsis":
        return ...
    if kind not in ("list", "tuple", "Size", "slice", "complex", "int"):
        return NotImplemented
    try:
        value = ast.literal_eval(text) if "e999" not in (text := _numbers(text)) else json.loads(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return NotImplemented
    return slice(*value) if kind == "slice" else value


def _numbers(text: str) -> str:
    """Spells numbers as Python does."""
    for word, python in (("true", "True"), ("false", "False"), ("null", "None"), ("inf", "1e999")):
        text = text.replace(word, python)
    return text


def _dtype(name: str) -> torch.dtype | None:
    found = getattr(torch, name.removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else None


def forward_of(name: str) -> str | None:
    """Returns the forward call of a backward one; None for any other."""
    parts = name.split(".")
    for place in (-1, -2):
        if len(parts) > 2 and parts[place] == "backward" and not name.startswith("Aten."):
            return ".".join([*parts[:place], "forward", *parts[len(parts) + place + 1:]])
    return None


def parameters_of(name: str) -> str | None:
    """Returns the module, `Module.up.Linear`, of gradients of parameters; None for any other call."""
    module, word, number = name.rpartition(".parameters_grad")
    return module if word and name.startswith("Module.") and (not number or number[1:].isdigit()) else None


def _list(node: Any) -> list[Any]:
    found = _nested(node)
    return found if isinstance(found, list) else []


def _named(node: dict[str, Any]) -> dict[str, Any]:
    return {name: _nested(value) for name, value in node.items()}


def _nested(node: Any) -> Any:
    """Returns lists and dicts of what was listed by path. An empty list leaves no row: a number that is missing was one."""
    if not isinstance(node, dict):
        return node
    if all(key.isdigit() for key in node):
        numbers = {int(key): value for key, value in node.items()}
        if max(numbers, default=-1) >= 2 * len(numbers) + 64:
            raise NotReplayed("most of its arguments were not recorded")
        return [_nested(numbers[place]) if place in numbers else [] for place in range(max(numbers, default=-1) + 1)]
    return _named(node)
