"""Statistics of tensors outside host memory, computed where the tensors are.

`observe` enqueues the work for a call's tensors on the device and returns at once: nothing in it waits for the
device, and no shape in it depends on data. `copy` does so for small tensors, whose elements are measured on the host.
`fetch` brings the statistics and elements of many tensors to the host in one copy.

One implementation for all devices, made of as few tensor operations as possible:

    device_chunks   a tensor in row-major order, a bounded piece at a time
    device_sums     what is computed for a piece
    device_classes  zeros, NaN, infinities, sentinels and extremes
    device_sketch   signs and lanes of the sketch
    device_groups   small tensors of one size, measured together
    device_cuda     all of it in one launch, on CUDA devices; the core builds it
    device_rows     many results in one copy to the host
    device_streams  ordering between queues that compute and queues that read
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, TypeVar

import torch

from probe.messages import say_once
from probe.private import safe
from probe.private.casts import OUT_OF_MEMORY
from probe.private.guards import Undisturbed
from probe.recorder.device_chunks import Kind, elements_at_once, kind_of, pieces
from probe.recorder.device_groups import Group, Groups, alike, in_rows
from probe.recorder.device_rows import Measured, Row, Together, fetched, rows, rows_of_groups, tensors_of, tensors_of_groups
from probe.recorder.device_streams import current_stream, is_capturing, wait_for
from probe.recorder.device_sums import Part, Sums


T = TypeVar("T")

#: Bytes up to which copies are joined on the device before they are fetched; larger ones are fetched alone.
_TOGETHER = 1 << 20


class Token:
    """Placeholder for the statistics of one tensor until they are fetched."""

    __slots__ = ("device", "dtype", "group", "kind", "parts", "place", "stream")

    #: Bytes waiting on the device, besides the statistics and what groups are limited to.
    held = 0

    def __init__(self, kind: Kind, tensor: torch.Tensor, stream: Any, group: Optional[Group] = None, place: int = 0) -> None:
        self.kind = kind
        self.dtype = tensor.dtype
        self.device = tensor.device
        #: Device queue in which the statistics are computed.
        self.stream = stream
        self.parts: list[Part] = []
        #: Group of tensors that it is measured with, and its place in the group; it then has no parts.
        self.group = group
        self.place = place


class Copy:
    """Placeholder for the elements of one tensor until they are fetched."""

    __slots__ = ("bytes", "device", "held", "stream")

    def __init__(self, tensor: torch.Tensor, device: torch.device, stream: Any) -> None:
        #: In row-major order: on the device, or in host memory if the device had no room.
        self.bytes = tensor
        self.device = device
        self.held = tensor.numel()
        #: Device queue in which they are copied.
        self.stream = stream


class Device:
    """Computes statistics and sketches with tensor operations, and fetches many of them at once.

    If a device lacks a required operation, tensors are copied to the host, which measures them: at most `host_bytes`
    per step. Those beyond get statistics without a sketch, if that works.
    """

    #: Kernel that tests use for tensors in host memory.
    host_kernel: Optional[Callable[[bool], Any]] = None

    def __init__(self, sketch: bool, host_bytes: int = 0, fused: bool = False) -> None:
        """With `fused`, the kernel of `device_cuda` measures what it can on CUDA devices."""
        self._sketch, self._fused = sketch, fused
        self._sums = Sums(sketch)
        self._statistics = Sums(False)
        self._groups = Groups(self._sums)
        self._host_bytes = host_bytes
        #: Bytes copied in this step because an operation is missing.
        self._copied = 0
        #: Reason why an operation is missing, by kind of device and dtype.
        self._missing: dict[tuple[str, torch.dtype], str] = {}

    @staticmethod
    def present() -> dict[str, Any]:
        """Returns kind, name and number of the devices that this process computes on."""
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return {"kind": "npu", "name": str(npu.get_device_name(0)), "count": npu.device_count()}
        if torch.cuda.is_available():
            return {"kind": "cuda", "name": torch.cuda.get_device_name(0), "count": torch.cuda.device_count()}
        return {"kind": "cpu", "name": "", "count": 1}

    def kernel(self, device: str) -> Any:
        """Returns the kernel (`probe._core.Kernel`) that measures tensors on the named device; None if there is none,
        which is reported."""
        if not self._fused:
            return None
        if device == "cpu" and self.host_kernel is not None:
            return self.host_kernel(self._sketch)
        if not device.startswith("cuda"):
            return None
        if reason := safe():
            say_once(f"fused: {reason}, so torch's operations measure")
            return None
        try:
            from probe.recorder import device_cuda

            return device_cuda.kernel(device, self._sketch)
        except Exception as error:
            self.without_kernel(_first_line(error))
            return None

    @staticmethod
    def without_kernel(reason: str) -> None:
        """Reports that the kernel cannot be used, or no longer, and why."""
        say_once(f"fused: the kernel cannot be used, so torch's operations measure: {reason}")

    def begin_step(self) -> None:
        """Resets the count of bytes copied because operations are missing."""
        self._copied = 0
        self._groups.restart()

    def missing(self) -> list[str]:
        """Returns what devices lacked so far: a line for each kind of device and dtype."""
        return [f"{kind} cannot measure {_name(dtype)}, so the host did: {why}" for (kind, dtype), why in self._missing.items()]

    def measure(self, tensor: torch.Tensor) -> Token | None:
        """Like `observe`, but on the device and alone, or not at all: raises RuntimeError if the device lacks
        something."""
        kind = kind_of(tensor.dtype)
        with Undisturbed():
            return None if kind is None else self._measured(self._sums, kind, tensor, current_stream(tensor.device))

    def observe(self, tensors: Sequence[torch.Tensor]) -> list[Token | Copy | str]:
        """Starts measuring `tensors` in their current state, each alone or with others. Returns a placeholder for
        each in order, or why there is none: its dtype is not numeric, the device is capturing a graph, it is out of
        memory."""
        with Undisturbed():
            return _for_each_kind(tensors, self._start)

    def _start(self, tensors: Sequence[torch.Tensor], stream: Any) -> list[Token | Copy | str]:
        """Observes tensors that are alike, in `stream`, which is the current one."""
        first = tensors[0]
        kind = kind_of(first.dtype)
        if kind is None:
            return [f"{first.dtype} is not measured on {first.device}"] * len(tensors)
        found: list[Token | Copy | str] = []
        if self._groups.takes(kind, first) and (first.device.type, first.dtype) not in self._missing:
            try:
                found += [Token(kind, first, stream, group, place) for group, place in self._groups.take(tensors, stream)]
            except RuntimeError:
                # Measuring each by itself finds and reports what is missing.
                found = []
        return found + [self._alone(kind, tensor, stream) for tensor in tensors[len(found) :]]

    def _alone(self, kind: Kind, tensor: torch.Tensor, stream: Any) -> Token | Copy | str:
        """Returns the placeholder of a tensor that is measured by itself, or why there is none."""
        try:
            return self._observed(kind, tensor, stream)
        except Exception as error:
            return _first_line(error)

    def _observed(self, kind: Kind, tensor: torch.Tensor, stream: Any) -> Token | Copy:
        known = (tensor.device.type, tensor.dtype)
        if known not in self._missing:
            try:
                return self._measured(self._sums, kind, tensor, stream)
            except OUT_OF_MEMORY:
                raise
            except RuntimeError as error:
                # No device can do this, for example read memory that was released; the dtype is not to blame.
                if not tensor.numel() or tensor.untyped_storage().nbytes() == 0:
                    raise
                reason = _first_line(error)
                say_once(f"{known[0]} cannot measure {_name(known[1])}, so the host does: {reason}")
                self._missing[known] = reason
        size = tensor.numel() * tensor.dtype.itemsize
        if self._copied + size <= self._host_bytes:
            self._copied += size
            return _copy(tensor, stream)
        try:
            return self._measured(self._statistics, kind, tensor, stream)
        except OUT_OF_MEMORY:
            raise
        except RuntimeError:
            raise RuntimeError(f"{self._missing[known]}; and host_bytes of the step are used up") from None

    def _measured(self, sums: Sums, kind: Kind, tensor: torch.Tensor, stream: Any) -> Token:
        token = Token(kind, tensor, stream)
        if tensor.numel():
            for piece in pieces(tensor, elements_at_once(tensor.dtype)):
                token.parts.append(sums.of(kind, piece, stream))
        return token

    def copy(self, tensors: Sequence[torch.Tensor]) -> list[Copy | str]:
        """Copies tensors in their current state; large ones wait for the device if it has no room. Returns a
        placeholder for each in order, or why there is none."""
        with Undisturbed():
            return _for_each_kind(tensors, _copies)

    def fetch(self, tokens: Sequence[Token | Copy]) -> list[Row | bytes | str | None]:
        """Returns the statistics or elements of `tokens` in order, or why there are none; waits for the device.
        `None` if the device lost them."""
        found: dict[Token | Copy, Row | bytes | str] = {}
        groups: dict[torch.device, list[Token | Copy]] = {}
        # A token may stand for several tensors.
        for token in dict.fromkeys(tokens):
            groups.setdefault(token.device, []).append(token)
        with Undisturbed():
            for device, group in groups.items():
                # A failure of one device does not affect another.
                with contextlib.suppress(RuntimeError):
                    found.update(self._fetch(device, group))
        return [found.get(token) for token in tokens]

    def _fetch(self, device: torch.device, tokens: Sequence[Token | Copy]) -> Iterator[tuple[Token | Copy, Row | bytes | str]]:
        wait_for(device, (token.stream for token in tokens))
        #: Requested tokens and the placeholders that replace them.
        copies: list[tuple[Token | Copy, Copy]] = []
        tensors: list[tuple[Token | Copy, Token]] = []
        groups: dict[Group, list[Token]] = {}
        for token in tokens:
            stands = self._closed(token)
            if isinstance(stands, Copy):
                copies.append((token, stands))
            elif isinstance(stands, Token) and stands.group is not None:
                groups.setdefault(stands.group, []).append(stands)
            elif isinstance(stands, Token):
                tensors.append((token, stands))
            else:
                yield token, stands
        for token, copy in copies:
            if copy.held > _TOGETHER:
                yield token, fetched([copy.bytes])
        copies = [(token, copy) for token, copy in copies if copy.held <= _TOGETHER]
        measured = [Measured(token.kind, token.dtype, token.parts) for _, token in tensors]
        together = [Together(members[0].kind, members[0].dtype, group.rows) for group, members in groups.items()]
        joint = tensors_of_groups(together)
        data = fetched([copy.bytes for _, copy in copies] + joint + tensors_of(measured))
        end = 0
        for token, copy in copies:
            start, end = end, end + copy.held
            yield token, data[start:end]
        start, end = end, end + sum(tensor.numel() * tensor.element_size() for tensor in joint)
        for members, found in zip(groups.values(), rows_of_groups(together, data[start:end])):
            for token in members:
                yield token, found[token.place]
        yield from zip((token for token, _ in tensors), rows(measured, data[end:], self._sketch))
        # The results have arrived.
        for group in {token.group for token in tokens if isinstance(token, Token) and token.group is not None}:
            self._groups.release(group)

    def _closed(self, token: Token | Copy) -> Token | Copy | str:
        """Returns the final placeholder of a tensor, now that no more come: for one that waits for others, its copy
        if there are none. Or why it cannot be measured."""
        if isinstance(token, Copy) or token.group is None:
            return token
        group = token.group
        if not group.measured and group.rows is None:
            stream = current_stream(token.device)
            try:
                self._groups.measure(group, stream)
            except RuntimeError:
                # Measured one by one, which finds and reports what is missing.
                group.measured = [self._alone(token.kind, copy, stream) for copy in group.copies()]
        if group.measured:
            return group.measured[token.place]
        if group.rows is None:
            return Copy(group.blocks[0].view(-1).view(torch.uint8), token.device, token.stream)
        return token


def _for_each_kind(tensors: Sequence[torch.Tensor], start: Callable[[Sequence[torch.Tensor], Any], Sequence[T | str]]) -> list[T | str]:
    """Returns the results of `start` for `tensors`, in order: it is called for each set of alike tensors with the
    current queue of their device."""
    found: dict[int, T | str] = {}
    queues: dict[torch.device, tuple[bool, Any]] = {}
    for (device, _, _), places in alike(tensors).items():
        captures, stream = queues.get(device) or queues.setdefault(device, (is_capturing(device), current_stream(device)))
        stand = ["the device is recording a graph"] * len(places) if captures else start([tensors[place] for place in places], stream)
        found.update(zip(places, stand))
    return [found[place] for place in range(len(tensors))]


def _copies(tensors: Sequence[torch.Tensor], stream: Any) -> list[Copy | str]:
    """Returns copies of tensors that are alike, or why there are none: with one launch if they are small."""
    first = tensors[0]
    if len(tensors) > 1 and 0 < len(tensors) * first.numel() * first.dtype.itemsize <= _TOGETHER:
        with contextlib.suppress(RuntimeError):
            rows = in_rows(tensors)
            if rows is not None:
                return [Copy(row, first.device, stream) for row in rows.view(torch.uint8).unbind(0)]
    found: list[Copy | str] = []
    for tensor in tensors:
        try:
            found.append(_copy(tensor, stream))
        except Exception as error:
            found.append(_first_line(error))
    return found


def _copy(tensor: torch.Tensor, stream: Any) -> Copy:
    try:
        same = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    except OUT_OF_MEMORY:
        if tensor.numel() * tensor.dtype.itemsize <= _TOGETHER:
            raise
        same = tensor.cpu().contiguous().resolve_conj().resolve_neg()
    return Copy(same.view(-1).view(torch.uint8), tensor.device, stream)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
