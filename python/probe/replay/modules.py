"""Modules of torch, rebuilt from recorded parameters.

A dump has a module's parameters but not its options. Those that shapes tell are derived; of the others, the ones that give what was recorded
most nearly are taken. A module whose recorded results none of them gives is not replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from probe.replay import functions, recurrent
from probe.replay.recorded import NotReplayed, leaves

if TYPE_CHECKING:
    from probe.replay.recorded import Call

Tensors = dict[str, torch.Tensor]


class Named(str):
    """A parameter or buffer in a module's call of a function: its name. Where the module has none of it, the function gets None."""


@dataclass(frozen=True)
class Rebuilt:
    """A module with its options, as the call of a function that it makes."""

    api: str
    #: Arguments behind what the module was given.
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, args: list[Any], of: Tensors) -> torch.Tensor:
        made: torch.Tensor = functions.resolve(self.api)(args[0], *self.given(of), **self.options)
        return made

    def given(self, of: Tensors) -> list[Any]:
        """Returns the arguments of the function behind the first."""
        return [of.get(each) if isinstance(each, Named) else each for each in self.args]


#: The module with every choice of options that its parameters, and the shapes of what it was given and made, allow; torch's defaults first.
Choices = Callable[[torch.Tensor, Tensors, torch.Tensor], Iterator[Rebuilt]]

#: Options whose results are this far from what was recorded, relative to its norm, are not those of the module.
_OTHER = 0.5
#: Small numbers that models put beside variances, torch's first.
_EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8)
#: Strides and dilations that are tried: those of patches and vocoders, and of pyramids, waves and gaps between taps.
_STRIDES, _DILATIONS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 32), (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 18, 24, 27, 32, 36, 64)


def run(call: Call, args: list[Any], kwargs: dict[str, Any], parameters: Tensors, gradients: Tensors | None) -> Tensors:
    """Returns the results of a module's forward or backward call by path. Raises NotReplayed for a class that is not known."""
    if call.base == "ParametrizationList":
        raise NotReplayed("it computes nothing: it hands on what its parametrizations make")
    compute = _rebuilt(call, args, kwargs)
    if gradients is None:
        with torch.no_grad():
            return _paths(compute(args, parameters))
    inputs = {path: each for path, each in leaves(args).items() if each.is_floating_point()}
    if not inputs:
        raise NotReplayed("no gradient flows to integers")
    with torch.enable_grad():
        for each in inputs.values():
            each.requires_grad_()
        made, arrived = _arrived(call, _paths(compute(args, parameters)), gradients)
        found = torch.autograd.grad(made, list(inputs.values()), arrived, allow_unused=True)
    return {path: each for path, each in zip(inputs, found) if each is not None}


def of_parameters(call: Call, args: list[Any], kwargs: dict[str, Any], parameters: Tensors, gradients: Tensors) -> Tensors:
    """Returns the gradients of a module's own parameters that a backward call makes, by name. Raises NotReplayed for a class that is not known."""
    compute = _rebuilt(call, args, kwargs)
    own = {name: each for name, each in parameters.items() if each.is_floating_point()}
    with torch.enable_grad():
        for each in own.values():
            each.requires_grad_()
        made, arrived = _arrived(call, _paths(compute(args, parameters)), gradients)
        found = torch.autograd.grad(made, list(own.values()), arrived, allow_unused=True)
    return {name: each for name, each in zip(own, found) if each is not None}


def as_function(call: Call) -> Call:
    """Returns a module's call as one of the function that it calls. Raises NotReplayed for modules that call several."""
    if len(call.passes) > 1 or call.before:
        raise NotReplayed(f"{call.name} is a sum over several calls of the module; record level mix or api and replay its functions")
    forward = call.passes[0] if call.passes else call
    function = _rebuilt(forward, forward.args, forward.kwargs)
    if not isinstance(function, Rebuilt):
        raise NotReplayed(f"a module of class {call.base} calls several functions; record level op and replay one of them")
    behind = [f"{place}" if isinstance(each, Named) else "" for place, each in enumerate(function.args, 1)]
    paths = {each: path for each, path in zip(function.args, behind) if path} if call.passes else {}
    # Each argument that was tracked gets a gradient, and no other is recorded.
    return replace(
        forward,
        name=f"{function.api}.0.{'backward' if call.is_backward else 'forward'}",
        args=[forward.args[0], *function.given(forward.parameters)],
        kwargs=dict(function.options),
        results={paths.get(path, path): each for path, each in call.results.items()},
        parameters={}, tracked=frozenset(), of_last_node=False, rebuilt=None,
    )  # fmt: skip


def _rebuilt(call: Call, args: list[Any], kwargs: dict[str, Any]) -> recurrent.Compute:
    """Returns the module with its options. Raises NotReplayed."""
    if kwargs or not args or not (isinstance(args[0], torch.Tensor) or recurrent.is_packed(args[0])):
        raise NotReplayed("it was called with other than a tensor")
    if call.rebuilt is None:
        call.rebuilt = _nearest(call)
    compute: recurrent.Compute = call.rebuilt
    return compute


def _paths(made: Any) -> Tensors:
    return leaves([made] if isinstance(made, torch.Tensor) else made)


def _arrived(call: Call, made: Tensors, gradients: Tensors) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the results at which gradients arrived, and these."""
    # The hidden state is made of the cell's: whether what arrived at that holds the part through the hidden state depends on the kernel.
    if not set(gradients) <= set(made) or (call.base == "LSTMCell" and "1" in gradients):
        raise NotReplayed("its gradients cannot be told apart")
    return [made[path] for path in gradients], [each.to(made[path].dtype) for path, each in gradients.items()]


def _possible(call: Call, args: list[Any], wide: Tensors, recorded: torch.Tensor) -> list[recurrent.Compute]:
    """Returns the module with every choice of its options."""
    # A module with parametrizations has their results for parameters.
    kind = call.base.removeprefix("Parametrized")
    several = recurrent.choices(kind, args, wide)
    if several is not None:
        return list(several)
    choices = _CLASSES.get(kind)
    if choices is None:
        raise NotReplayed(f"modules of class {call.base} cannot be rebuilt from a dump; record level mix or api and replay its functions")
    if len(args) > 1 or not isinstance(args[0], torch.Tensor):
        raise NotReplayed("it was called with more than a tensor")
    return list(choices(args[0], wide, recorded))


def _nearest(call: Call) -> recurrent.Compute:
    """Returns the module with the options whose results are nearest to what the forward call recorded."""
    args, wide = ([_wide(each) for each in call.args], {name: _wide(each) for name, each in call.parameters.items()})
    recorded = {path: each for path, each in (call.made or call.results).items() if each.is_floating_point()}
    # Of packed sequences the result has parts.
    first = next((path for path in ("0", "0.0") if path in recorded), None)
    if first is None:
        raise NotReplayed("no tensor was recorded as its result")
    possible, most = _possible(call, args, wide, recorded[first]), recurrent.MOST if recurrent.layers(wide) > 1 else _OTHER
    if len(possible) == 1 and most == _OTHER:
        return possible[0]
    tried = [(each, result) for each in possible if (result := _tried(each, args, wide)) is not None]
    results = [(each, result[first]) for each, result in tried if all(path in result and result[path].shape == kept.shape for path, kept in recorded.items())]
    best = min(results, key=lambda each: _distance(each[1], recorded[first]), default=None)
    if best is not None and _distance(best[1], recorded[first]) <= most:
        return best[0]
    if most == _OTHER and results and all(_distance(result, results[0][1]) <= _OTHER for _, result in results):
        # Whatever the options are, the result is wrong.
        return results[0][0]
    if most != _OTHER:
        raise NotReplayed(f"this {call.base} has several layers: dropout between them, which a dump lacks, may be what moves its result")
    raise NotReplayed(f"the options of this {call.base} were not recorded, and none that are usual give its result; record level mix or api")


def _wide(value: Any) -> Any:
    """Returns an argument with its floats in float64."""
    if isinstance(value, (list, tuple)):
        return [_wide(each) for each in value]
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _tried(module: recurrent.Compute, args: list[Any], parameters: Tensors) -> Tensors | None:
    """Returns the results with these options; None where the function refuses them."""
    try:
        with torch.no_grad():
            return _paths(module(args, parameters))
    except (RuntimeError, ValueError):
        return None


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    off, size = (torch.nan_to_num(each.double(), 0.0, 0.0, 0.0).norm().item() for each in (one - other, other))
    return off / max(size, 1e-300)


def _layer_norm(given: torch.Tensor, of: Tensors, recorded: torch.Tensor) -> Iterator[Rebuilt]:
    if "weight" not in of:
        raise NotReplayed("the sizes over which it normalises were not recorded")
    for eps in _EPSILONS:
        yield Rebuilt("Functional.layer_norm", (list(of["weight"].shape), Named("weight"), Named("bias"), eps))


def _group_norm(given: torch.Tensor, of: Tensors, recorded: torch.Tensor) -> Iterator[Rebuilt]:
    channels = given.shape[1]
    for groups in (each for each in range(1, channels + 1) if channels % each == 0):
        for eps in _EPSILONS:
            yield Rebuilt("Functional.group_norm", (groups, Named("weight"), Named("bias"), eps))


def _batch_norm(given: torch.Tensor, of: Tensors, recorded: torch.Tensor) -> Iterator[Rebuilt]:
    for eps in _EPSILONS:
        yield Rebuilt("Functional.batch_norm", (None, None, Named("weight"), Named("bias"), True, 0.0, eps))
        if "running_mean" in of:
            means = (Named("running_mean"), Named("running_var"))
            yield Rebuilt("Functional.batch_norm", (*means, Named("weight"), Named("bias"), False, 0.0, eps))


def _convolution(given: torch.Tensor, of: Tensors, recorded: torch.Tensor) -> Iterator[Rebuilt]:
    """Groups follow from the weight; of strides, paddings and dilations those that give the recorded sizes, the same in all dimensions."""
    weight = of["weight"]
    groups, kernel, before, after = given.shape[1] // weight.shape[1], weight.shape[2:], given.shape[2:], recorded.shape[2:]
    for dilation in _DILATIONS if max(kernel) > 1 else (1,):
        for padding in range(dilation * (max(kernel) - 1) + 1):
            for stride in _STRIDES:
                if all((size + 2 * padding - dilation * (each - 1) - 1) // stride + 1 == made for size, each, made in zip(before, kernel, after)):
                    yield Rebuilt(f"Functional.conv{weight.dim() - 2}d", (Named("weight"), Named("bias"), stride, padding, dilation, groups))


def _over_dimensions(api: str) -> Choices:
    return lambda given, of, recorded: (Rebuilt(api, (dimension,)) for dimension in reversed(range(given.dim())))


def _one_of(*possible: Rebuilt) -> Choices:
    return lambda given, of, recorded: iter(possible)


_CLASSES: dict[str, Choices] = {
    "Linear": _one_of(Rebuilt("Functional.linear", (Named("weight"), Named("bias")))),
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), _batch_norm),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), _convolution),
    "Embedding": _one_of(Rebuilt("Functional.embedding", (Named("weight"),))),
    "Softmax": _over_dimensions("Torch.softmax"),
    "LogSoftmax": _over_dimensions("Torch.log_softmax"),
    "GELU": _one_of(Rebuilt("Functional.gelu"), Rebuilt("Functional.gelu", options={"approximate": "tanh"})),
    "LeakyReLU": _one_of(*(Rebuilt("Functional.leaky_relu", (slope,)) for slope in (0.01, 0.1, 0.2))),
    "ReLU": _one_of(Rebuilt("Functional.relu")),
    "SiLU": _one_of(Rebuilt("Functional.silu")),
    "Sigmoid": _one_of(Rebuilt("Torch.sigmoid")),
    "Tanh": _one_of(Rebuilt("Torch.tanh")),
    "Softplus": _one_of(Rebuilt("Functional.softplus")),
    "Hardswish": _one_of(Rebuilt("Functional.hardswish")),
    "Mish": _one_of(Rebuilt("Functional.mish")),
}
