"""Numbers of tensors that are not in host memory, computed where they are.

`observe` puts the work in the device's queue and comes back at once: nothing in it waits for the device, and no shape in
it depends on data. `copy` does so for a small tensor, whose elements are measured on the host. `fetch` brings the numbers and
elements of many tensors to the host in one copy.

One implementation for all devices, of tensor operations, as few as can be:

    device_chunks   a tensor in row-major order, a bounded piece at a time
    device_sums     what is computed of a piece
    device_classes  zeros, NaN, infinities, sentinels and extremes
    device_sketch   signs and lanes of the sketch
    device_fused    both of these by one kernel of Triton's, where that is asked for
    device_rows     many results in one copy to the host
    device_streams  what one queue computes and another reads
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from probe.messages import say_once
from probe.private import safe
from probe.private.guards import Undisturbed
from probe.recorder.device_chunks import Kind, elements_at_once, kind_of, pieces
from probe.recorder.device_rows import Measured, Row, fetched, rows, tensors_of
from probe.recorder.device_streams import current_stream, is_capturing, wait_for
from probe.recorder.device_sums import Part, Sums


#: Bytes of all copies that are put together on the device before they are fetched; larger ones come alone.
_TOGETHER = 1 << 20


class Token:
    """Stands for the numbers of one tensor until they are fetched."""

    __slots__ = ("device", "dtype", "kind", "parts", "stream")

    #: Bytes that wait on the device, beside the numbers.
    held = 0

    def __init__(self, kind: Kind, tensor: torch.Tensor, stream: Any) -> None:
        self.kind = kind
        self.dtype = tensor.dtype
        self.device = tensor.device
        #: Queue of the device in which the numbers are computed.
        self.stream = stream
        self.parts: list[Part] = []


class Copy:
    """Stands for the elements of one tensor until they are fetched."""

    __slots__ = ("bytes", "device", "held", "stream")

    def __init__(self, tensor: torch.Tensor, device: torch.device, stream: Any) -> None:
        #: In row-major order: on the device, or in host memory where the device had no room.
        self.bytes = tensor
        self.device = device
        self.held = tensor.numel()
        #: Queue of the device in which they are copied.
        self.stream = stream


class Device:
    """Computes statistics and sketches with tensor operations, and fetches many of them at once.

    Where a device lacks an operation that this needs, tensors are copied to the host, which measures them: `host_bytes` of
    them a step at most. Those beyond have statistics without a sketch, if that works.
    """

    def __init__(self, sketch: bool, host_bytes: int = 0, fused: bool = False) -> None:
        """With `fused`, the kernel of `device_fused` measures what it can, where Triton is there to compile it."""
        self._sketch = sketch
        self._sums = Sums(sketch, _kernel() if fused else None)
        self._statistics = Sums(False)
        self._host_bytes = host_bytes
        #: Bytes copied in this step because something is missing.
        self._copied = 0
        #: What is missing, by the kind of device and type of tensor.
        self._missing: dict[tuple[str, torch.dtype], str] = {}

    @staticmethod
    def present() -> dict[str, Any]:
        """Kind, name and number of the devices that this process computes on."""
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return {"kind": "npu", "name": str(npu.get_device_name(0)), "count": npu.device_count()}
        if torch.cuda.is_available():
            return {"kind": "cuda", "name": torch.cuda.get_device_name(0), "count": torch.cuda.device_count()}
        return {"kind": "cpu", "name": "", "count": 1}

    def begin_step(self) -> None:
        """Bytes that are copied for want of operations are counted anew."""
        self._copied = 0

    def missing(self) -> list[str]:
        """What devices lacked so far: a line for each kind of device and type of tensor."""
        return [f"{kind} cannot measure {_name(dtype)}, which the host did instead: {why}" for (kind, dtype), why in self._missing.items()]

    def measure(self, tensor: torch.Tensor) -> Token | None:
        """As `observe`, by the device or not at all: raises RuntimeError where it lacks something."""
        kind = kind_of(tensor.dtype)
        return None if kind is None else self._measured(self._sums, kind, tensor)

    def observe(self, tensor: torch.Tensor) -> Token | Copy | None:
        """Starts to measure `tensor` as it is now. `None` where that cannot be done: its type has no numbers, or the
        device is recording a graph. Raises what torch raises, such as running out of memory."""
        kind = kind_of(tensor.dtype)
        if kind is None or is_capturing(tensor.device):
            return None
        known = (tensor.device.type, tensor.dtype)
        if known not in self._missing:
            try:
                return self._measured(self._sums, kind, tensor)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                # Asked for what no device can do, such as numbers of memory that was given back: no matter of the type.
                if not tensor.numel() or tensor.untyped_storage().nbytes() == 0:
                    raise
                reason = _first_line(error)
                say_once(f"{known[0]} cannot measure {_name(known[1])}, so the host does: {reason}")
                self._missing[known] = reason
        size = tensor.numel() * tensor.dtype.itemsize
        if self._copied + size <= self._host_bytes:
            self._copied += size
            return self.copy(tensor)
        try:
            return self._measured(self._statistics, kind, tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            raise RuntimeError(f"{self._missing[known]}; and host_bytes of the step are used up") from None

    def _measured(self, sums: Sums, kind: Kind, tensor: torch.Tensor) -> Token:
        with Undisturbed():
            token = Token(kind, tensor, current_stream(tensor.device))
            if tensor.numel():
                for piece in pieces(tensor, elements_at_once(tensor.dtype)):
                    token.parts.append(sums.of(kind, piece, token.stream))
        return token

    def copy(self, tensor: torch.Tensor) -> Copy | None:
        """Copies a tensor as it is now; a large one waits for the device if that has no room. `None` where the device is recording
        a graph. Raises what torch raises."""
        if is_capturing(tensor.device):
            return None
        with Undisturbed():
            try:
                same = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
            except torch.OutOfMemoryError:
                if tensor.numel() * tensor.dtype.itemsize <= _TOGETHER:
                    raise
                same = tensor.cpu().contiguous().resolve_conj().resolve_neg()
            return Copy(same.view(-1).view(torch.uint8), tensor.device, current_stream(tensor.device))

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
        for copy in copies:
            if copy.held > _TOGETHER:
                yield copy, fetched([copy.bytes])
        copies = [copy for copy in copies if copy.held <= _TOGETHER]
        tensors = [token for token in tokens if isinstance(token, Token)]
        measured = [Measured(token.kind, token.dtype, token.parts) for token in tensors]
        data = fetched([copy.bytes for copy in copies] + tensors_of(measured))
        end = 0
        for copy in copies:
            start, end = end, end + copy.held
            yield copy, data[start:end]
        yield from zip(tensors, rows(measured, data[end:], self._sketch))


def _kernel() -> Any:
    """The module with the kernel; None where it cannot be had, which is said."""
    if reason := safe():
        say_once(f"fused: {reason}, so torch's operations measure")
        return None
    try:
        from probe.recorder import device_fused
    except Exception as error:
        say_once(f"fused: Triton cannot be loaded, so torch's operations measure: {_first_line(error)}")
        return None
    return device_fused


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
