"""One call again: in float64 as the reference, or as it was, on any device.

What the function returns is its result, what it writes to is too. A backward call is autograd on the inputs of its forward call
and on the gradients that arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from probe.private import dispatcher
from probe.replay import functions, modules
from probe.replay.recorded import Call, NotReplayed, leaves

Change = Callable[[torch.Tensor], torch.Tensor]

#: Types that a function computes in or returns: the reference computes in float64 instead.
_LOWER = (torch.float32, torch.float16, torch.bfloat16)

#: Methods that only change the type.
_CASTS = frozenset({"to", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous", "requires_grad_", "cpu", "cuda", "npu", "__deepcopy__"})

#: Functions of which several results are right.
_NOT_UNIQUE = ("svd", "eig")

#: Arguments that say where a result lies, not what it is.
_PLACES = frozenset({"pin_memory", "layout", "device", "non_blocking", "out"})


def why_not(call: Call) -> str | None:
    """Returns why there is nothing to hold the call against; None if there is."""
    if call.is_module:
        return None
    if not call.results:
        return "no tensor was recorded as its result"
    if functions.views(call.api) and call.base not in _CASTS:
        return "it computes nothing: its result is a view of an argument"
    if any(word in call.base for word in _NOT_UNIQUE):
        return "its result is not unique: vectors may have either sign"
    if functions.draws(call.api) and not call.tensors():
        return "it draws random numbers"
    if functions.is_unwritten(call.api):
        return "it returns memory that nobody wrote"
    return None


def reference(call: Call, change: Change | None = None) -> dict[str, torch.Tensor]:
    """Returns the results in float64 (complex128; integers as they are), by path. `change` is applied to everything it reads.

    Raises whatever the function raises.
    """

    def prepared(tensor: torch.Tensor) -> torch.Tensor:
        wide = widened(tensor)
        return change(wide) if change is not None else wide

    return _run(call, prepared, wide=True)


def here(call: Call, device: str = "cpu", prepared: Change | None = None) -> dict[str, torch.Tensor]:
    """Returns the results that this machine computes in the recorded types, on the host."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        tensor = prepared(tensor) if prepared is not None else tensor
        return _with_strides(tensor.to(device), tensor)

    found = _run(call, moved, wide=False)
    return {path: tensor.detach().cpu() for path, tensor in found.items()}


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in float64 or complex128; of integers as it is."""
    if tensor.is_floating_point():
        return tensor.to(torch.float64, copy=True)
    return tensor.to(torch.complex128, copy=True) if tensor.is_complex() else tensor.clone()


def _with_strides(moved: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Returns `moved` in memory of its own with the strides of `of`."""
    if moved.data_ptr() == of.data_ptr() or moved.stride() != of.stride():
        made = torch.empty_strided(of.shape, of.stride(), dtype=of.dtype, device=moved.device) if 0 not in of.stride() else moved.clone()
        return made.copy_(moved)
    return moved


def mapped(change: Change, value: Any, seen: dict[int, torch.Tensor]) -> Any:
    """Returns nested lists and dicts with `change` applied to every tensor; one that occurs twice is changed once."""
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen[id(value)] = change(value)
        return seen[id(value)]
    if isinstance(value, list):
        return [mapped(change, item, seen) for item in value]
    if isinstance(value, dict):
        return {name: mapped(change, item, seen) for name, item in value.items()}
    return value


def _run(call: Call, prepared: Change, wide: bool) -> dict[str, torch.Tensor]:
    if call.passes:
        return _of_parameters(call, prepared)
    seen: dict[int, torch.Tensor] = {}
    args, kwargs = mapped(prepared, call.args, seen), mapped(prepared, call.kwargs, seen)
    args, kwargs = _arguments(call, args, kwargs, wide)
    if call.is_module:
        parameters = mapped(prepared, call.parameters, seen)
        return modules.run(call, args, kwargs, parameters, mapped(prepared, call.gradients, {}) if call.gradients is not None else None)
    with torch.no_grad():
        if call.gradients is None:
            return _results(call, args, kwargs, _apply(call, args, kwargs))
    return _backward(call, args, kwargs, mapped(prepared, call.gradients, {}))


def _of_parameters(call: Call, prepared: Change) -> dict[str, torch.Tensor]:
    """Returns the gradients of a module's parameters: what its backward calls add to those that were there."""
    found = {name: prepared(each) for name, each in call.before.items()}
    for each in call.passes:
        seen: dict[int, torch.Tensor] = {}
        args, kwargs, parameters = (mapped(prepared, value, seen) for value in (each.args, each.kwargs, each.parameters))
        for name, gradient in modules.of_parameters(each, args, kwargs, parameters, mapped(prepared, each.gradients, {})).items():
            found[name] = found[name] + gradient if name in found else gradient
    return found


def _arguments(call: Call, args: list[Any], kwargs: dict[str, Any], wide: bool) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments in the forms that the function takes."""
    base = call.base
    kwargs = {name: value for name, value in kwargs.items() if name not in _PLACES}
    if base in ("__getitem__", "__setitem__") and len(args) > 1 and isinstance(args[1], list):
        args[1] = tuple(args[1])
    if not args and base in ("zeros", "ones", "full"):
        args = [[]]
    if not wide:
        return args, kwargs
    if base == "_to_copy":
        kwargs = {name: value for name, value in kwargs.items() if name == "dtype"}
    elif kwargs.get("dtype") in _LOWER and base not in functions.MAKERS:
        kwargs["dtype"] = torch.float64
    if base in ("_softmax", "_log_softmax") and len(args) == 3:
        args[2] = False
    if base in ("_softmax_backward_data", "_log_softmax_backward_data") and len(args) > 3:
        args[3] = torch.float64
    return args, kwargs


def _apply(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if call.base in _CASTS and not call.api.startswith("Aten."):
        return args[0]
    return functions.resolve(call.api)(*args, **kwargs)


def _results(call: Call, args: list[Any], kwargs: dict[str, Any], returned: Any) -> dict[str, torch.Tensor]:
    """Returns what the call made, by the paths of its recorded results."""
    if returned is None or (isinstance(returned, (list, tuple)) and not leaves(returned)):
        return written(call, args, kwargs)
    return leaves([returned] if isinstance(returned, torch.Tensor) else returned)


def written(call: Call, args: list[Any], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the arguments that a function without a result writes to, by the paths of its recorded results."""
    places = dispatcher.written(functions.resolve(call.api)) if call.api.startswith("Aten.") else [(0, "")]
    return leaves([args[place] if place < len(args) else kwargs.get(name) for place, name in places])


def _backward(call: Call, args: list[Any], kwargs: dict[str, Any], gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns gradients of the arguments, by path; where a recorder saw those of the last node instead, these."""
    given = {**leaves(args), **leaves(kwargs)}
    inputs = {path: each for path, each in given.items() if (each.is_floating_point() or each.is_complex()) and (not call.tracked or path in call.tracked)}
    with torch.enable_grad():
        for tensor in inputs.values():
            tensor.requires_grad_()
        # An op in place must not be given a leaf.
        once: dict[int, torch.Tensor] = {}
        read_args, read_kwargs = (mapped(lambda tensor: tensor.view_as(tensor) * 1 if tensor.requires_grad else tensor, value, once) for value in (args, kwargs))
        returned = leaves(_results(call, read_args, read_kwargs, _apply(call, read_args, read_kwargs)))
    arrived = [(returned[path], gradient) for path, gradient in gradients.items() if path in returned and returned[path].requires_grad]
    if not arrived:
        raise NotReplayed("no gradient arrived at a result that depends on its inputs")
    arrived = [(result, gradient.reshape(result.shape).to(result.dtype)) for result, gradient in arrived]
    if call.of_last_node:
        return _of_last_node(call, arrived)
    used = list({id(tensor): tensor for tensor in inputs.values()}.values())
    found = torch.autograd.grad([result for result, _ in arrived], used, [gradient for _, gradient in arrived], allow_unused=True)
    by_tensor = {id(tensor): gradient for tensor, gradient in zip(used, found)}
    return {path: gradient for path, tensor in inputs.items() if (gradient := by_tensor[id(tensor)]) is not None}


def _of_last_node(call: Call, arrived: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Returns the gradients that the node behind the result passes on. A function of several nodes has others on another device."""
    ((result, gradient),) = arrived if len(arrived) == 1 else [(None, None)]
    if result is None or result.grad_fn is None:
        raise NotReplayed("gradients of several results were recorded in a form that does not tell them apart")
    passed = result.grad_fn(gradient)
    found = [each for each in (passed if isinstance(passed, tuple) else (passed,))]
    for numbered in (dict(enumerate(found)), dict(enumerate(each for each in found if each is not None))):
        made = {str(place): each for place, each in numbered.items() if each is not None}
        if all(path in made and made[path].shape == recorded.shape for path, recorded in call.results.items()):
            return made
    raise NotReplayed("what was recorded of its gradients is not what its last node passes on here")
