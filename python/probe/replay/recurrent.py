"""Recurrent modules and cells of torch, and weight norm, rebuilt from recorded parameters.

Layers, directions, biases and projections follow from the names of the parameters, `batch_first` from the shapes or the nearest result. Dropout between
layers is in no dump: a result that it may have moved is not judged (`MOST`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from probe.replay.recorded import NotReplayed

Tensors = dict[str, torch.Tensor]
#: A module with its options: its result from its arguments and parameters.
Compute = Callable[[list[Any], Tensors], Any]

#: The furthest that the nearest result of stacked layers may be from what was recorded, relative to its norm: five units of bfloat16. Dropout of one in a
#: hundred moves what the next layer reads by a tenth of its norm.
MOST = 0.02
_FUNCTIONS = {"LSTM": (torch.lstm,), "GRU": (torch.gru,), "RNN": (torch.rnn_tanh, torch.rnn_relu)}
_CELLS = {"LSTMCell": (torch.lstm_cell,), "GRUCell": (torch.gru_cell,), "RNNCell": (torch.rnn_tanh_cell, torch.rnn_relu_cell)}
#: The last layer of a stack, by the name of its weight.
_LAYER = re.compile(r"weight_ih_l(\d+)")


def layers(of: Tensors) -> int:
    """Returns the number of layers whose weights these are; 0 for those of another module."""
    return 1 + max((int(found[1]) for name in of if (found := _LAYER.fullmatch(name))), default=-1)


def choices(kind: str, args: list[Any], of: Tensors) -> Iterator[Compute] | None:
    """Yields the module with every choice of options that its parameters allow; None for a class that is not of this file. Raises NotReplayed."""
    if kind in _FUNCTIONS:
        return _stacks(kind, args, of)
    if kind in _CELLS:
        return (functools.partial(_cell, function) for function in _CELLS[kind])
    return _weight_norms(args) if kind == "_WeightNorm" else None


def _stacks(kind: str, args: list[Any], of: Tensors) -> Iterator[Compute]:
    packed = not isinstance(args[0], torch.Tensor)
    if args[0][0].dim() != 2:
        raise NotReplayed("its input has no dimension of the batch")
    for function in _FUNCTIONS[kind]:
        for batch_first in (False,) if packed else (False, True):
            yield functools.partial(_stack, function, batch_first)


def _stack(function: Callable[..., tuple[torch.Tensor, ...]], batch_first: bool, args: list[Any], of: Tensors) -> Any:
    """Runs a stack of layers; what it returns is nested as the module nests it."""
    packed = None if isinstance(args[0], torch.Tensor) else _Packed(args[0])
    given, count = packed.data if packed is not None else args[0], layers(of)
    ways = ("", "_reverse") if "weight_ih_l0_reverse" in of else ("",)
    parts = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if "bias_ih_l0" in of else ()), *(("weight_hr",) if "weight_hr_l0" in of else ()))
    weights = [of[f"{part}_l{layer}{way}"] for layer in range(count) for way in ways for part in parts]
    is_lstm = function is torch.lstm
    batch = packed.sequences if packed is not None else given.shape[0 if batch_first else 1]
    state = args[1] if len(args) > 1 and args[1] is not None else _at_rest(given, count * len(ways), batch, of, is_lstm)
    if packed is not None:
        state = [packed.sorted(each) for each in state] if is_lstm else packed.sorted(state)
        made, *last = function(given, packed.sizes, state, weights, "bias_ih_l0" in of, count, 0.0, False, len(ways) == 2)
        made, last = (made,), [packed.restored(each) for each in last]
    else:
        made, *last = function(given, state, weights, "bias_ih_l0" in of, count, 0.0, False, len(ways) == 2, batch_first)
    return (made, tuple(last)) if is_lstm else (made, *last)


class _Packed:
    """Sequences of several lengths, as `torch.nn.utils.rnn.PackedSequence` is recorded."""

    def __init__(self, parts: list[Any]) -> None:
        self.data, self.sizes, self._order, self._places = [*parts, None, None][:4]
        self.sequences = int(self.sizes[0])

    def sorted(self, state: torch.Tensor) -> torch.Tensor:
        """Returns the states of the sequences, the longest first."""
        return state if self._order is None else state.index_select(1, self._order)

    def restored(self, state: torch.Tensor) -> torch.Tensor:
        """Returns states in the order in which the sequences were given."""
        return state if self._places is None else state.index_select(1, self._places)


def is_packed(value: Any) -> bool:
    """Returns true for a recorded `PackedSequence`."""
    tensors = value[:2] if isinstance(value, list) and 2 <= len(value) <= 4 else []
    return len(tensors) == 2 and all(isinstance(each, torch.Tensor) for each in tensors) and not tensors[1].is_floating_point() and tensors[1].dim() == 1 and tensors[1].numel() > 0


def _at_rest(given: torch.Tensor, states: int, batch: int, of: Tensors, is_lstm: bool) -> torch.Tensor | list[torch.Tensor]:
    hidden = given.new_zeros(states, batch, of["weight_hh_l0"].shape[1])
    # A projection makes the hidden state narrower than the cell's; of each of the four gates there is a row for each number of the cell.
    return [hidden, given.new_zeros(states, batch, of["weight_hh_l0"].shape[0] // 4)] if is_lstm else hidden


def _cell(function: Callable[..., Any], args: list[Any], of: Tensors) -> Any:
    given = args[0]
    state = args[1] if len(args) > 1 else None
    if state is None:
        rest = given.new_zeros(*given.shape[:-1], of["weight_hh"].shape[1])
        state = [rest, rest] if function is torch.lstm_cell else rest
    return function(given, state, of["weight_ih"], of["weight_hh"], of.get("bias_ih"), of.get("bias_hh"))


def _weight_norms(args: list[Any]) -> Iterator[Compute]:
    if len(args) != 2 or not isinstance(args[1], torch.Tensor):
        raise NotReplayed("it was called with other than a length and a direction")
    lengths, directions = args
    kept = {place for place in range(directions.dim()) if lengths.dim() == directions.dim() and lengths.shape[place] == directions.shape[place]}
    for place in sorted(kept):
        others = [each for each in range(directions.dim()) if each != place]
        if all(lengths.shape[each] == 1 for each in others):
            yield functools.partial(_weight_norm, others)
    if lengths.numel() == 1:
        yield functools.partial(_weight_norm, list(range(directions.dim())))


def _weight_norm(over: list[int], args: list[Any], of: Tensors) -> torch.Tensor:
    lengths, directions = args
    return directions * (lengths / torch.linalg.vector_norm(directions, dim=over, keepdim=True))
