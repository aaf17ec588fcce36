"""Moves weights and inputs by one rounding, so that one machine can show the effect of rounding on a run: the only
thing here that changes a training, and never done unless requested.

Half of the numbers stay, the others move to the next number up or down, at random. The next number is that of the
dtype used for computing: under autocast that of its dtype. Zeros and non-finite numbers stay.
"""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import torch

from probe.private.casts import autocast_dtype
from probe.private.guards import without_dispatch

#: Integer dtype of the same size, and number of mantissa bits.
_BITS = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.bfloat16: (torch.int16, 7),
    torch.float16: (torch.int16, 10),
}

#: Numbers moved at a time, which bounds the memory needed.
_CHUNK = 1 << 22


class Perturbation:
    """Moves the weights of each outermost module once, at its first call in a recorded step, and its inputs at each
    of its calls in recorded steps."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._done: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._moved: set[int] = set()
        #: Tensors drawn for so far: each has random numbers of its own, so that ranks sharing a weight move it alike.
        self._drawn = 0
        #: Weights and inputs moved so far.
        self.weights = 0
        self.inputs = 0

    def before(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Moves the weights and inputs of an outermost call. Returns the arguments to call it with; `kwargs` are
        replaced in place."""
        with without_dispatch():
            if module not in self._done:
                self._done.add(module)
                for parameter in module.parameters():
                    if id(parameter) not in self._moved:
                        self._moved.add(id(parameter))
                        self.weights += self._weight(parameter)
            for key, value in kwargs.items():
                kwargs[key] = self._given(value)
            return tuple(self._given(value) for value in args)

    def describe(self) -> str:
        """Describes what was moved."""
        weights, inputs = (f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in ((self.weights, "weight"), (self.inputs, "input")))
        return f"--perturb {self._seed} moved {weights} and {inputs} by one rounding"

    def _weight(self, parameter: torch.Tensor) -> bool:
        # A sharded one holds its part.
        local = getattr(parameter, "_local_tensor", parameter)
        # Does not bump the tensor's version: a graph that has saved it may still run backward.
        return self._move(local.data)

    def _given(self, value: Any) -> Any:
        """Returns the value with its float tensors moved; the caller's own are unchanged. Tensors already part of a
        graph are left alone."""
        if isinstance(value, torch.Tensor):
            if type(value) is not torch.Tensor or value.requires_grad or value.dtype not in _BITS:
                return value
            moved = value.clone()
            if not self._move(moved):
                return value
            self.inputs += 1
            return moved
        if type(value) in (list, tuple):
            return type(value)(self._given(item) for item in value)
        if type(value) is dict:
            return {key: self._given(item) for key, item in value.items()}
        return value

    def _move(self, tensor: torch.Tensor) -> bool:
        """Moves a tensor in place; returns false if it cannot be moved."""
        self._drawn += 1
        known = _BITS.get(tensor.dtype)
        if known is None or tensor.layout != torch.strided or tensor.numel() == 0 or tensor.device.type == "meta":
            return False
        integer, bits = known
        generator = torch.Generator(device=tensor.device)
        # CPU generators take 32 bits of a seed.
        generator.manual_seed(zlib.crc32(f"{self._seed} {self._drawn}".encode()))
        unit = 1 << max(0, bits - _BITS.get(_computes_in(tensor), known)[1])
        whole = tensor.view(-1) if tensor.is_contiguous() else tensor.reshape(-1)
        for part in whole.split(_CHUNK):
            words = part.view(integer)
            # 0 and 3 stay, 1 goes up, 2 goes down.
            draw = torch.randint(0, 4, words.shape, dtype=torch.int8, device=tensor.device, generator=generator)
            moved = (words + ((draw == 1).to(integer) - (draw == 2).to(integer)) * unit).view(tensor.dtype)
            stays = (part == 0) | ~part.isfinite() | ~moved.isfinite() | (moved.signbit() != part.signbit())
            part.copy_(torch.where(stays, part, moved))
        if not tensor.is_contiguous():
            tensor.copy_(whole.view(tensor.shape))
        return True


def _computes_in(tensor: torch.Tensor) -> torch.dtype:
    """Returns the dtype in which products of this tensor are computed."""
    if tensor.dtype == torch.float32 and (cast := autocast_dtype(tensor.device.type)) is not None:
        return cast
    return tensor.dtype
