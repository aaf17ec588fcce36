"""Numbers of tensors that are not in host memory, computed where they are.

`observe` puts the work in the device's queue and comes back at once: nothing in it waits for the device, and no shape in
it depends on data. `copy` does so for a small tensor, whose elements are measured on the host: one operation in place of
some fifty. `fetch` brings the numbers of many tensors to the host, with one copy for each kind of number, and one for all
elements.

One implementation for all devices, of tensor operations only:

    device_chunks   a tensor in row-major order, a bounded piece at a time
    device_classes  zeros, NaN, infinities and extremes
    device_sketch   signs and lanes of the sketch
    wide_sums       sums where the device has binary64
    pair_sums       sums where it has not: exact pairs of binary32
    device_rows     many results in few copies to the host
    device_copies   elements of small tensors
    device_streams  what one queue computes and another reads
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack, pop_dynamic_layer_stack, push_dynamic_layer_stack

from probe.recorder.device_chunks import Chunk, Kind, chunks, kind_of
from probe.recorder.device_classes import limits
from probe.recorder.device_copies import Copy, copied, elements
from probe.recorder.device_rows import Row, fetched, row, sketches
from probe.recorder.device_sketch import Signs, Tables
from probe.recorder.device_streams import Shared, current_stream, is_capturing, wait_for
from probe.recorder.device_sums import Part, Sums
from probe.recorder.pair_sums import PairSums
from probe.recorder.wide_sums import WideSums

#: Devices without binary64 in their vector units. Some emulate it far from their memory, so trying would not tell.
_WITHOUT_BINARY64 = frozenset({"npu", "mps"})


class Token:
    """Stands for the numbers of one tensor until they are fetched."""

    __slots__ = ("device", "elements", "kind", "parts", "stream")

    def __init__(self, kind: Kind, elements: int, device: torch.device, stream: Any) -> None:
        self.kind = kind
        self.elements = elements
        self.device = device
        #: Queue of the device in which the numbers are computed.
        self.stream = stream
        self.parts: list[Part] = []


class Device:
    """Computes statistics and sketches with tensor operations, and fetches many of them at once.

    `pairs` chooses the sums: `None` takes binary64 where the device has it.
    """

    def __init__(self, sketch: bool, pairs: bool | None = None) -> None:
        self._tables = Tables() if sketch else None
        self._limits = Shared()
        self._pairs = pairs
        self._sums: dict[torch.device, Sums] = {}

    @staticmethod
    def present() -> dict[str, Any]:
        """Kind, name and number of the devices that this process computes on."""
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return {"kind": "npu", "name": str(npu.get_device_name(0)), "count": npu.device_count()}
        if torch.cuda.is_available():
            return {"kind": "cuda", "name": torch.cuda.get_device_name(0), "count": torch.cuda.device_count()}
        return {"kind": "cpu", "name": "", "count": 1}

    def observe(self, tensor: torch.Tensor) -> Token | None:
        """Starts to measure `tensor` as it is now. `None` where that cannot be done: its type has no numbers, or the
        device is recording a graph. Raises what torch raises, such as running out of memory."""
        kind = kind_of(tensor.dtype)
        if kind is None or is_capturing(tensor.device):
            return None
        with undisturbed():
            device, stream = tensor.device, current_stream(tensor.device)
            token = Token(kind, tensor.numel(), device, stream)
            sums = self._sums_of(device)
            for chunk in chunks(tensor.detach(), kind):
                token.parts.append(sums.of(chunk, self._limits_of(chunk, stream), self._signs_of(chunk, stream)))
        return token

    def copy(self, tensor: torch.Tensor) -> Copy | None:
        """Copies a small tensor as it is now. `None` where the device is recording a graph. Raises what torch raises."""
        if is_capturing(tensor.device):
            return None
        with undisturbed():
            return copied(tensor)

    def fetch(self, tokens: Sequence[Token | Copy]) -> list[Row | bytes | None]:
        """The numbers or elements that `tokens` stand for, in their order; waits for the device. `None` where it lost them."""
        found: dict[Token | Copy, Row | bytes] = {}
        numbers: dict[torch.device, list[Token]] = {}
        copies: dict[torch.device, list[Copy]] = {}
        for token in tokens:
            if isinstance(token, Copy):
                copies.setdefault(token.device, []).append(token)
            else:
                numbers.setdefault(token.device, []).append(token)
        with undisturbed():
            # One device's failure is not another's.
            for device, group in numbers.items():
                with contextlib.suppress(RuntimeError):
                    found.update(zip(group, self._fetch(device, group)))
            for device, few in copies.items():
                with contextlib.suppress(RuntimeError):
                    found.update(zip(few, elements(device, few)))
        return [found.get(token) for token in tokens]

    def _limits_of(self, chunk: Chunk, stream: Any) -> torch.Tensor | None:
        dtype, device = chunk.classified, chunk.values.device
        if dtype is None:
            return None
        return self._limits.get((device, dtype), device, stream, lambda: limits(dtype, device))

    def _signs_of(self, chunk: Chunk, stream: Any) -> Signs | None:
        if self._tables is None:
            return None
        return self._tables.of(chunk.values.device, chunk.index, chunk.rows, stream)

    def _sums_of(self, device: torch.device) -> Sums:
        sums = self._sums.get(device)
        if sums is None:
            pairs = not has_binary64(device) if self._pairs is None else self._pairs
            sums = self._sums[device] = PairSums() if pairs else WideSums()
        return sums

    def _fetch(self, device: torch.device, tokens: Sequence[Token]) -> list[Row]:
        wait_for(device, (token.stream for token in tokens))
        sums = self._sums_of(device)
        parts = [part for token in tokens for part in token.parts]
        found, lanes = sums.finish(*fetched(parts, sums.narrow), self._tables is not None) if parts else ([], None)
        counts = [len(token.parts) for token in tokens]
        statistics = [row(token.kind, token.elements, found[place]) for token, place in zip(tokens, _places(counts))]
        if self._tables is None:
            return [(*each, None) for each in statistics]
        return [(*each, sketch) for each, sketch in zip(statistics, sketches(lanes, counts))]


def _places(counts: Sequence[int]) -> Iterator[slice]:
    """Where `counts` parts each lie that follow one another."""
    end = 0
    for count in counts:
        end += count
        yield slice(end - count, end)


def has_binary64(device: torch.device) -> bool:
    """Whether to sum in binary64 on `device`."""
    if device.type in _WITHOUT_BINARY64:
        return False
    try:
        torch.linalg.vector_norm(torch.full((2,), 1.5, dtype=torch.float64, device=device))
    except (RuntimeError, TypeError):
        return False
    return True


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Operations are the device's alone: no modes of the program's or the recorder's, no gradients, no casts."""
    with contextlib.ExitStack() as stack:
        # Transforms that the program is in, such as `vmap`: the last one in is the first one out.
        while peek_interpreter_stack() is not None:
            stack.callback(push_dynamic_layer_stack, pop_dynamic_layer_stack())
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableTorchDispatch())
        stack.enter_context(torch._C._DisableAutocast())
        stack.enter_context(torch.no_grad())
        yield
