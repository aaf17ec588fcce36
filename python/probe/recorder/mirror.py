"""Copies of the memory that ops have written: an op that reads something else reads what no op wrote.

A mirror holds the bits of a whole storage, on its device, and is written where and when an op writes. Nothing here waits
for a device before `settle`, so that races stay as they are. The copies take as much memory as the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import torch

from probe.private import autograd
from probe.private.storages import Held, everything, identity, version_of, words
from probe.recorder.device_streams import current_stream

#: Storages known at a time; beyond, those that are gone are dropped, and then all.
_MOST = 1 << 16
#: Writes to one storage that are kept apart.
_MOST_WRITES = 256
#: Results of comparisons that may wait on a device.
_MOST_WAITING = 4096

#: Bits of a NaN that no computation makes of itself, by type: memory that nobody has written holds it.
UNWRITTEN = {
    torch.float64: 0x7FFC5A5A5A5A5A5A,
    torch.float32: 0x7FE5A5A5,
    torch.bfloat16: 0x7FE5,
    torch.float16: 0x7F5A,
    torch.complex64: 0x7FE5A5A57FE5A5A5,
    torch.complex128: 0x7FFC5A5A5A5A5A5A,
}


#: Offset, size and stride of a tensor in its storage.
_Place = tuple[int, tuple[int, ...], tuple[int, ...]]


class Kind(Enum):
    """Ways in which elements are wrong; the value says what is wrong with them, of the op that is named."""

    CHANGED = "which have changed since {} wrote them, and no op did that"
    UNWRITTEN = "which nobody wrote: {} gave out the memory"
    UNCOUNTED = "which {} changed after they were saved for backward, without counting the write (as .data does)"


@dataclass(eq=False)
class _Memory:
    """One storage."""

    held: Held
    bits: torch.UntypedStorage
    #: Extent in bytes of each write, and the op that made it; the latest last.
    writes: dict[tuple[int, int], str] = field(default_factory=dict)
    #: Op that gave out the memory without writing it.
    unwritten_by: str | None = None
    #: The bits came from another device, where a copy that is under way began.
    arriving: bool = False
    #: Versions of tensors that forward ops have seen, by place.
    versions: dict[_Place, int] = field(default_factory=dict)
    #: Last writes to these places: the version before, the op, which elements it changed, and the number of the next autograd node.
    changes: dict[_Place, tuple[int, str, torch.Tensor, int]] = field(default_factory=dict)

    def wrote(self, tensor: torch.Tensor, op: str) -> None:
        place = _extent(tensor)
        self.writes.pop(place, None)
        self.writes[place] = op
        if len(self.writes) > _MOST_WRITES:
            del self.writes[next(iter(self.writes))]


@dataclass
class Difference:
    """Elements that are not what they should be."""

    reader: str
    slot: str
    shape: tuple[int, ...]
    count: int
    #: Index of the first of them.
    first: tuple[int, ...]
    kind: Kind
    #: Op that wrote the first of them, or gave out the memory; None if that was before anything was seen.
    writer: str | None
    #: The memory, to tell findings apart.
    memory: object

    def __str__(self) -> str:
        some = f"{self.count:,} of {math.prod(self.shape):,} elements of {self.slot}, from {list(self.first)} on"
        return f"{self.reader} reads {some}, {self.kind.value.format(self.writer or 'an earlier op')}"


@dataclass
class _Waiting:
    """A comparison whose result lies on a device."""

    differs: torch.Tensor
    memory: _Memory
    tensor: tuple[tuple[int, ...], tuple[int, ...], int, int]
    reader: str
    slot: str
    kind: Kind = Kind.CHANGED
    #: The bits that should be there, if those that are lie on another device: `differs` holds these then.
    expected: torch.Tensor | None = None
    #: Op at fault, or the writes from which it follows.
    writer: str | dict[tuple[int, int], str] | None = None
    #: A flag without which this is no finding.
    shows: torch.Tensor | None = None


class Mirrors:
    """The memory of one process during a step."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}
        self._waiting: list[_Waiting] = []
        self._found: list[Difference] = []
        #: Values held against their mirrors so far.
        self.checked = 0

    def clear(self) -> None:
        """Forgets everything: something has run that was not seen."""
        self._known.clear()

    def forget(self, tensor: torch.Tensor) -> None:
        """Forgets the memory of a tensor, which something unseen will write."""
        self._known.pop(identity(tensor.untyped_storage()), None)

    def check(self, tensor: torch.Tensor, reader: str, slot: str) -> None:
        """Holds what an op is about to read against what was written."""
        memory = self._of(tensor)
        if memory is None:
            self._begin(tensor)
            return
        self.checked += 1
        found, expected = words(tensor, tensor.untyped_storage()), words(tensor, memory.bits)
        facts = _facts(tensor)
        if memory.arriving:
            self._wait(_Waiting(found.clone(), memory, facts, reader, slot, expected=expected.clone(), writer=dict(memory.writes)))
            self._replace(tensor, memory)
            return
        if tensor.device.type == "cpu" and torch.equal(found, expected):
            return
        self._use(memory)
        differs = found != expected
        if memory.unwritten_by is not None and (pattern := UNWRITTEN.get(tensor.dtype)) is not None:
            # A kernel that torch does not show has written them for the first time.
            differs = differs & (expected != pattern)
        self._finding(_Waiting(differs, memory, facts, reader, slot, writer=dict(memory.writes)))
        if tensor.device.type == "cpu":
            self._replace(tensor, memory)

    def saw(self, tensor: torch.Tensor) -> None:
        """Notes the version of a tensor that a forward op has read or made, which may be saved for backward."""
        memory, version = self._of(tensor), version_of(tensor)
        if memory is not None and version is not None:
            memory.versions[_place(tensor)] = version

    def check_saved(self, tensor: torch.Tensor, node: int, reader: str, slot: str) -> None:
        """Looks for a write since the autograd node of this number was made, in what it has read. Torch raises an error for those that it
        counts."""
        memory = self._of(tensor)
        change = memory.changes.get(_place(tensor)) if memory is not None else None
        if memory is not None and change is not None:
            version, writer, changed, next_node = change
            if node < next_node and version == version_of(tensor):
                self._finding(_Waiting(changed, memory, _facts(tensor), reader, slot, Kind.UNCOUNTED, writer=writer))

    def check_unwritten(self, tensor: torch.Tensor, result: torch.Tensor | None, reader: str, slot: str) -> None:
        """Looks for elements that nobody wrote, in what an op has read. `result` is what it made of them, if that can show it: only a
        result with NaN has used them."""
        memory, pattern = self._of(tensor), UNWRITTEN.get(tensor.dtype)
        if memory is None or memory.unwritten_by is None or pattern is None:
            return
        shows = None if result is None else result.isnan().any()
        differs = words(tensor, tensor.untyped_storage()) == pattern
        self._finding(_Waiting(differs, memory, _facts(tensor), reader, slot, Kind.UNWRITTEN, writer=memory.unwritten_by, shows=shows))

    def gave(self, tensor: torch.Tensor) -> str | None:
        """Returns the op that gave out the memory of a tensor, if elements of it may be unwritten."""
        memory = self._of(tensor)
        return None if memory is None else memory.unwritten_by

    def wrote(self, tensor: torch.Tensor, op: str, unwritten_by: str | None = None) -> None:
        """Takes over what an op has written. `unwritten_by`: these are elements that nobody wrote, from memory that this op gave out."""
        memory = self._of(tensor)
        if memory is None or memory.arriving:
            memory = self._begin(tensor)
        else:
            self._use(memory)
            mirrored, written = words(tensor, memory.bits), words(tensor, tensor.untyped_storage())
            if (version := memory.versions.get(_place(tensor))) is not None:
                memory.changes[_place(tensor)] = version, op, mirrored != written, autograd.next_sequence()
            _copy(mirrored, written)
        memory.wrote(tensor, op)
        memory.unwritten_by = unwritten_by or memory.unwritten_by

    def arrives(self, tensor: torch.Tensor, source: torch.Tensor, op: str) -> None:
        """Expects in `tensor` the elements of `source`, on another device: they are being copied."""
        of_source = self._of(source)
        bits = torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8, device=source.device).untyped_storage()
        there = words(tensor, bits)
        if source.dtype != tensor.dtype or of_source is None:
            typed = torch.empty(0, dtype=tensor.dtype, device=source.device).set_(bits, tensor.storage_offset(), tensor.size(), tensor.stride())
            typed.copy_(source)
        else:
            there.copy_(words(source, of_source.bits))
        memory = self._known[identity(tensor.untyped_storage())] = _Memory(Held(tensor.untyped_storage()), bits, arriving=True)
        memory.wrote(tensor, op)

    def settle(self) -> list[Difference]:
        """Waits for comparisons on devices. Returns what has been found since it was last called."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.expected is not None:
                each.differs = each.differs != each.expected.to(each.differs.device)
            self._find(each)
        found, self._found = self._found, []
        return found

    def _of(self, tensor: torch.Tensor) -> _Memory | None:
        storage = tensor.untyped_storage()
        memory = self._known.get(identity(storage))
        return memory if memory is not None and memory.held.is_of(storage) else None

    def _begin(self, tensor: torch.Tensor) -> _Memory:
        """Copies the whole storage of a tensor."""
        if len(self._known) >= _MOST:
            self._known = {key: memory for key, memory in self._known.items() if not memory.held.is_gone()}
            if len(self._known) >= _MOST:
                self._known.clear()
        storage = tensor.untyped_storage()
        memory = _Memory(Held(storage), everything(storage).clone().untyped_storage())
        self._known[identity(storage)] = memory
        return memory

    def _replace(self, tensor: torch.Tensor, memory: _Memory) -> None:
        """Takes what is there for right from now on, so that it is reported once."""
        fresh = self._begin(tensor)
        fresh.writes, fresh.unwritten_by = dict(memory.writes), memory.unwritten_by

    def _use(self, memory: _Memory) -> None:
        """Keeps a mirror's memory until the current queue has used it."""
        stream = current_stream(memory.bits.device)
        if stream is not None:
            everything(memory.bits).record_stream(stream)

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if len(self._waiting) >= _MOST_WAITING:
            self._found += self.settle()

    def _finding(self, waiting: _Waiting) -> None:
        """Looks at a comparison now, if that need not wait for a device."""
        if waiting.differs.device.type == "cpu":
            self._find(waiting)
        else:
            self._wait(waiting)

    def _find(self, waiting: _Waiting) -> None:
        (shape, stride, offset, itemsize), differs = waiting.tensor, waiting.differs
        if (waiting.shows is not None and not bool(waiting.shows)) or not bool(differs.any()):
            return
        if itemsize == 16:
            differs = differs.any(-1)
        place = int(differs.flatten().to(torch.uint8).argmax())
        index: list[int] = []
        for size in reversed(shape):
            place, at = divmod(place, size)
            index.insert(0, at)
        byte = (offset + sum(at * step for at, step in zip(index, stride))) * itemsize
        writer = waiting.writer
        if isinstance(writer, dict):
            writer = next((op for (begin, end), op in reversed(writer.items()) if begin <= byte < end), None)
        self._found.append(Difference(waiting.reader, waiting.slot, shape, int(differs.sum()), tuple(index), waiting.kind, writer, waiting.memory))


def _copy(to: torch.Tensor, source: torch.Tensor) -> None:
    """Copies words; those that several elements share are equal, and are copied once."""
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in to.stride())
    to[once].copy_(source[once])


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the bytes between which a tensor lies."""
    last = sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride()))
    begin = tensor.storage_offset()
    return begin * tensor.element_size(), (begin + last + 1) * tensor.element_size()


def _facts(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    return tuple(tensor.size()), tuple(tensor.stride()), tensor.storage_offset(), tensor.element_size()


def _place(tensor: torch.Tensor) -> _Place:
    return tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride())


def tensors_in(value: object, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors of an op's arguments, which are lists at most, with their paths."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from tensors_in(item, f"{path}.{place}")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from tensors_in(item, f"{path}.{name}")
