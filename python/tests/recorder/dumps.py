"""Reads what was recorded, for the tests: the tables by pyarrow, the data by its offset. No code of ours."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

_Row = dict[str, Any]


@dataclasses.dataclass
class Slot:
    """One value that an op read or wrote."""

    row: _Row
    folder: Path
    #: All rows of the part.
    rows: list[_Row]

    def __getattr__(self, name: str) -> Any:
        return self.row[name]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(json.loads(self.row["shape"]))

    @property
    def data_size(self) -> int:
        """Bytes of the elements, recorded or not."""
        return math.prod(self.shape) * getattr(torch, self.row["dtype"].removeprefix("torch.")).itemsize

    @property
    def data(self) -> torch.Tensor:
        """The recorded data: of task `tensor`, and of small tensors."""
        row = self.row
        if row["offset"] is None:
            data = row["data"] if row["same_as"] is None else self.rows[row["same_as"]]["data"]
            assert data is not None, f"{row['op']} {row['slot']} has no data: {row['tensor_note']}"
        else:
            with (self.folder / f"tensors-{row['shard']:05}.safetensors").open("rb") as file:
                file.seek(row["offset"])
                data = file.read(row["bytes"])
        dtype = getattr(torch, row["dtype"].removeprefix("torch."))
        tensor = torch.empty(self.shape, dtype=dtype)
        assert tensor.numel() * tensor.element_size() == len(data)
        ctypes.memmove(tensor.data_ptr(), data, len(data))
        return tensor


@dataclasses.dataclass
class Op:
    """One call."""

    name: str
    row: _Row
    slots: dict[str, Slot]
    stack: list[str]

    def __getattr__(self, name: str) -> Any:
        return self.row[name]

    def __getitem__(self, slot: str) -> Slot:
        return self.slots[slot]

    @property
    def line(self) -> str:
        """The innermost line of the user's."""
        return self.stack[0].rpartition("\n ")[2]

    @property
    def where(self) -> tuple[str, int]:
        """File and line number of the innermost frame."""
        found = re.match(r"File (.*), line (\d+), in ", self.stack[0])
        assert found
        return found[1], int(found[2])


class Dump:
    """The record of one rank in one step."""

    def __init__(self, root: Path | str, step: int = 0, rank: int = 0, journal: bool = False) -> None:
        self.root = Path(root)
        self.folder = self.root / f"step{step}" / f"rank{rank}"
        rows = _journal(self.folder / "journal.arrows") if journal else pq.read_table(self.folder / "ops.parquet").to_pylist()
        stacks: dict[int, list[str]] = {}
        if not journal:
            for row in pq.read_table(self.folder / "stacks.parquet").to_pylist():
                stacks.setdefault(row["stack"], []).append(row["frame"])
        self.ops: list[Op] = []
        last = None
        for row in rows:
            if row["order"] != last:
                self.ops.append(Op(row["op"], row, {}, stacks.get(row["stack"], [])))
                last = row["order"]
            if row["slot"] is not None:
                self.ops[-1].slots[row["slot"]] = Slot(row, self.folder, rows)

    @property
    def names(self) -> list[str]:
        return [op.name for op in self.ops]

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.root / "manifest.json").read_text())

    def __contains__(self, name: str) -> bool:
        return any(op.name == name for op in self.ops)

    def __getitem__(self, name: str) -> Op:
        found = [op for op in self.ops if op.name == name]
        assert found, f"no {name} in {self.names}"
        assert len(found) == 1, f"{len(found)} times {name}"
        return found[0]

    def all(self, stem: str) -> list[Op]:
        """Every call whose name begins with `stem` and a number."""
        return [op for op in self.ops if re.match(re.escape(stem) + r"\.\d+\.", op.name)]


def _journal(path: Path) -> list[_Row]:
    """Complete batches of a journal that may have been cut."""
    rows: list[_Row] = []
    with path.open("rb") as file:
        stream = pa.ipc.open_stream(file)
        while True:
            try:
                rows += stream.read_next_batch().to_pylist()
            except (StopIteration, pa.ArrowInvalid, OSError):
                return rows


def steps(root: Path | str) -> list[int]:
    """Steps that have a folder."""
    return sorted(int(path.name[4:]) for path in Path(root).glob("step*"))


def same(slot: Any, tensor: torch.Tensor) -> bool:
    """True if a slot holds just this tensor."""
    data = slot.data
    return data.shape == tensor.shape and data.dtype == tensor.dtype and torch.equal(data, tensor.detach())
