"""Numbers of tensors that are not in host memory, computed where they are.

`observe` puts the work in the device's queue and comes back at once: nothing in it waits for the device, and no shape in
it depends on data. `copy` does so for a small tensor, whose elements are measured on the host. `fetch` brings the numbers and
elements of many tensors to the host in one copy.

One implementation for all devices, of tensor operations only, as few as can be:

    device_chunks   a tensor in row-major order, a bounded piece at a time
    device_sums     what is computed of a piece
    device_classes  zeros, NaN, infinities, sentinels and extremes
    device_sketch   signs and lanes of the sketch
    device_rows     many results in one copy to the host
    device_streams  what one queue computes and another reads
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack, pop_dynamic_layer_stack, push_dynamic_layer_stack

from probe.recorder.device_chunks import Kind, elements_at_once, kind_of, pieces
from probe.recorder.device_rows import Measured, Row, fetched, rows, tensors_of
from probe.recorder.device_streams import current_stream, is_capturing, wait_for
from probe.recorder.device_sums import Part, Sums


class Token:
    """Stands for the numbers of one tensor until they are fetched."""

    __slots__ = ("device", "dtype", "kind", "parts", "stream")

    def __init__(self, kind: Kind, tensor: torch.Tensor, stream: Any) -> None:
        self.kind = kind
        self.dtype = tensor.dtype
        self.device = tensor.device
        #: Queue of the device in which the numbers are computed.
        self.stream = stream
        self.parts: list[Part] = []


class Copy:
    """Stands for the elements of one small tensor until they are fetched."""

    __slots__ = ("bytes", "device", "stream")

    def __init__(self, tensor: torch.Tensor, stream: Any) -> None:
        #: In row-major order, on the device.
        self.bytes = tensor
        self.device = tensor.device
        #: Queue of the device in which they are copied.
        self.stream = stream


class Device:
    """Computes statistics and sketches with tensor operations, and fetches many of them at once."""

    def __init__(self, sketch: bool) -> None:
        self._sketch = sketch
        self._sums = Sums(sketch)

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
        with Undisturbed():
            token = Token(kind, tensor, current_stream(tensor.device))
            if tensor.numel():
                for piece in pieces(tensor, elements_at_once(tensor.dtype)):
                    token.parts.append(self._sums.of(kind, piece, token.stream))
        return token

    def copy(self, tensor: torch.Tensor) -> Copy | None:
        """Copies a small tensor as it is now. `None` where the device is recording a graph. Raises what torch raises."""
        if is_capturing(tensor.device):
            return None
        with Undisturbed():
            same = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
            return Copy(same.view(-1).view(torch.uint8), current_stream(tensor.device))

    def fetch(self, tokens: Sequence[Token | Copy]) -> list[Row | bytes | None]:
        """The numbers or elements that `tokens` stand for, in their order; waits for the device. `None` where it lost them."""
        found: dict[Token | Copy, Row | bytes] = {}
        groups: dict[torch.device, list[Token | Copy]] = {}
        # A token may stand for several tensors.
        for token in dict.fromkeys(tokens):
            groups.setdefault(token.device, []).append(token)
        with Undisturbed():
            for device, group in groups.items():
                # One device's failure is not another's.
                with contextlib.suppress(RuntimeError):
                    found.update(self._fetch(device, group))
        return [found.get(token) for token in tokens]

    def _fetch(self, device: torch.device, tokens: Sequence[Token | Copy]) -> Iterator[tuple[Token | Copy, Row | bytes]]:
        wait_for(device, (token.stream for token in tokens))
        copies = [token for token in tokens if isinstance(token, Copy)]
        tensors = [token for token in tokens if isinstance(token, Token)]
        measured = [Measured(token.kind, token.dtype, token.parts) for token in tensors]
        data = fetched([copy.bytes for copy in copies] + tensors_of(measured))
        end = 0
        for copy in copies:
            start, end = end, end + copy.bytes.numel()
            yield copy, data[start:end]
        yield from zip(tensors, rows(measured, data[end:], self._sketch))


class Undisturbed:
    """Operations are the device's alone: no modes of the program's or the recorder's, no gradients, no casts.

    A class of its own: entered for every tensor, generators take longer than the operations.
    """

    __slots__ = ("_guards", "_layers")

    def __enter__(self) -> None:
        # Transforms that the program is in, such as `vmap`: the last one in is the first one out.
        self._layers = []
        while peek_interpreter_stack() is not None:
            self._layers.append(pop_dynamic_layer_stack())
        # Below autograd, which would be asked of every operation and view.
        self._guards = (
            torch._C.DisableTorchFunction(),
            torch._C._DisableTorchDispatch(),
            torch._C._DisableAutocast(),
            torch._C._AutoDispatchBelowAutograd(),
        )
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(None, None, None)
        while self._layers:
            push_dynamic_layer_stack(self._layers.pop())
