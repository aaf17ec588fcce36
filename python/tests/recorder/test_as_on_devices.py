"""Tensors that are not in host memory: those of the host, measured by a device's operations."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump
from probe.recorder import core, device_sums
from probe.recorder.device import Copy, Device, Token
from probe.recorder.device_rows import SUM_ERROR

Record = Callable[..., Dump]


class Calls:
    """Requests of the recorder to the device."""

    def __init__(self) -> None:
        #: Storage, place and version of what was measured.
        self.measured: list[tuple[Any, ...]] = []
        self.fetched: list[list[Token | Copy]] = []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """The recorder takes all tensors for those of a device."""
    found = Calls()
    # Addresses are not given to others.
    held: list[Any] = []

    def noting(method: Any) -> Any:
        def call(self: Device, tensors: list[torch.Tensor]) -> Any:
            for tensor in tensors:
                held.append(tensor.untyped_storage())
                place = (held[-1].data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
                found.measured.append((*place, tensor._version, tensor.dtype))
            return method(self, tensors)

        return call

    def fetch(self: Device, tokens: Any, method: Any = Device.fetch) -> Any:
        found.fetched.append(list(tokens))
        return method(self, tokens)

    for name in ("observe", "copy"):
        monkeypatch.setattr(Device, name, noting(getattr(Device, name)))
    monkeypatch.setattr(Device, "fetch", fetch)
    monkeypatch.setattr(core, "_AS_ON_DEVICE", True)
    yield found


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 40))


def training(net: nn.Module, steps: int = 1) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    data = torch.randn(16, 40, generator=torch.Generator().manual_seed(1))

    def work() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(data), data).backward()
            optimizer.step()

    return work


@pytest.mark.parametrize("level", ["module", "mix", "api", "op"])
@pytest.mark.parametrize("task", ["statistics", "sketch"])
def test_numbers_are_those_of_the_host(record: Record, calls: Calls, monkeypatch: pytest.MonkeyPatch, level: str, task: str) -> None:
    net = model()
    there = record(training(net), net, level=level, task=task)
    assert calls.measured
    # In one go, at the end of the step.
    assert len(calls.fetched) == 1
    monkeypatch.setattr(core, "_AS_ON_DEVICE", False)
    net = model()
    here = record(training(net), net, level=level, task=task)
    assert there.names == here.names
    for op, same in zip(here.ops, there.ops, strict=True):
        assert sorted(op.slots) == sorted(same.slots)
        for path, slot in op.slots.items():
            other = same[path]
            for key in ("kind", "shape", "elements", "zeros", "nan", "sentinels"):
                assert other.row[key] == slot.row[key], (op.name, path, key)
            if slot.elements is None:
                continue
            assert (other.min, other.max) == (slot.min, slot.max)
            assert slot.norm is None or other.norm == pytest.approx(slot.norm, rel=SUM_ERROR)
            # Elements, or a sketch, or the row that has them.
            stored = [any(row[key] is not None for key in ("sketch", "data", "same_as")) for row in (slot.row, other.row)]
            assert stored == [task == "sketch"] * 2
            assert slot.row["sum_error"] is None and other.row["sum_error"] in (None, SUM_ERROR)


@pytest.mark.parametrize("level", ["module", "mix", "api", "op"])
def test_a_tensor_is_measured_once_a_step(record: Record, calls: Calls, level: str) -> None:
    net = model()
    dump = record(training(net), net, level=level, task="sketch")
    repeated = len(calls.measured) - len(set(calls.measured))
    # The result of an op in place is measured before torch counts the write, under the version of what was there.
    in_place = sum(op.name.split(".")[1].endswith("_") or "Optimizer" in op.name for op in dump.ops)
    assert repeated <= (8 * in_place if in_place else 0), repeated
    slots = [slot for op in dump.ops for slot in op.slots.values() if slot.row["elements"] is not None]
    assert len(calls.measured) < 0.75 * len(slots)
    # Tensors of one identity have one measurement.
    seen: dict[int, Any] = {}
    for slot in slots:
        assert slot.identity is not None
        numbers = (slot.min, slot.max, slot.mean, slot.norm)
        assert seen.setdefault(slot.identity, numbers) == numbers


def test_a_write_is_measured_again(record: Record, calls: Calls) -> None:
    def work() -> None:
        x = torch.ones(3000)
        x.sin()
        x.add_(1)
        x.cos()
        x.cos()

    dump = record(work, task="statistics")
    assert dump["Tensor.sin.0.forward"]["input.0"].max == 1.0
    assert dump["Tensor.add_.0.forward"]["output.0"].max == 2.0
    assert dump["Tensor.cos.0.forward"]["input.0"].max == dump["Tensor.cos.1.forward"]["input.0"].max == 2.0
    # x, sin(x), x + 1, and the two results of cos.
    assert len(calls.measured) == 5


def test_what_was_measured_in_a_step_is_not_known_in_the_next(tmp_path: Any, calls: Calls) -> None:
    import probe

    x = torch.ones(3000)
    capture = probe.Capture(tmp_path / "dump", level="api", task="statistics", quiet=True)
    for _ in range(2):
        capture.start(None)
        x.sin()
        x.data.zero_()
        capture.stop()
        capture.step()
    capture.close()
    steps = [Dump(tmp_path / "dump", step=step) for step in (0, 1)]
    assert [dump["Tensor.sin.0.forward"]["input.0"].max for dump in steps] == [1.0, 0.0]


def test_training_is_not_changed(record: Record, calls: Calls) -> None:
    nets = [model(), model()]
    training(nets[0], 3)()
    record(training(nets[1], 3), nets[1], level="op", task="sketch")
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))


def test_memory_that_ends_while_measuring_is_said_and_training_goes_on(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_AS_ON_DEVICE", True)

    def full(self: Device, tensors: list[torch.Tensor]) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Device, "observe", full)
    dump = record(lambda: torch.ones(3000).sin(), task="statistics")
    slot = dump["Tensor.sin.0.forward"]["input.0"]
    assert slot.row["elements"] is None and "out of memory" in slot.row["tensor_note"]


@pytest.mark.parametrize("level", ["mix", "op"])
@pytest.mark.parametrize("task", ["tensor", "hash"])
def test_data_and_hashes_are_those_of_the_host(record: Record, calls: Calls, monkeypatch: pytest.MonkeyPatch, level: str, task: str) -> None:
    net = model()
    there = record(training(net), net, level=level, task=task)
    monkeypatch.setattr(core, "_AS_ON_DEVICE", False)
    net = model()
    here = record(training(net), net, level=level, task=task)
    assert there.names == here.names
    compared = 0
    for op, same in zip(here.ops, there.ops, strict=True):
        assert list(op.slots) == list(same.slots)
        for path, slot in op.slots.items():
            for key in ("elements", "hash", "norm", "sum_error"):
                assert same[path].row[key] == slot.row[key], (op.name, path, key)
            if task == "tensor" and slot.row["elements"]:
                assert torch.equal(same[path].data, slot.data), (op.name, path)
                compared += 1
    assert task == "hash" or compared > 20


def test_data_of_chosen_ops_and_a_budget(record: Record, calls: Calls) -> None:
    def work() -> None:
        x = torch.ones(3000)
        x.sin()
        x.cos()
        x.tan()

    # A tensor measured before is copied where its data is wanted.
    dump = record(work, task="statistics", tensors=["torch.Tensor.cos"])
    assert torch.equal(dump["Tensor.cos.0.forward"]["input.0"].data, torch.ones(3000))
    assert torch.equal(dump["Tensor.cos.0.forward"]["output.0"].data, torch.ones(3000).cos())
    assert dump["Tensor.sin.0.forward"]["input.0"].row["offset"] is None and dump["Tensor.tan.0.forward"]["output.0"].row["offset"] is None


def test_data_beyond_the_budget_is_left_out(tmp_path: Any, calls: Calls) -> None:
    # Room for the first of them.
    dump = sines(tmp_path / "dump", task="tensor", max_bytes=13000)
    first, second = dump["Torch.arange.0.forward"]["output.0"], dump["Tensor.sin.0.forward"]["output.0"]
    assert torch.equal(first.data, torch.arange(3000.0))
    assert second.row["offset"] is None and second.row["sketch"] is not None and "data left out" in second.row["tensor_note"]
    assert ["was left out, beyond the byte budget" in note for note in dump.manifest["notes"]] == [True]


def test_copies_that_wait_are_bounded(record: Record, calls: Calls) -> None:
    """By 256 MiB, whatever the step."""

    def work() -> None:
        for _ in range(5):
            torch.zeros(25 << 20, dtype=torch.uint8).neg()

    dump = record(work, task="hash")
    assert len(calls.fetched) == 1
    assert len([op for op in dump.ops]) == 10


class Lacks:
    """A device without an operation that sums need."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, only_sketches: bool = False) -> None:
        self.only_sketches = only_sketches

        def lacking(plain: Callable[..., Any]) -> Callable[..., Any]:
            def call(sums: device_sums.Sums, *args: Any) -> Any:
                if not only_sketches or sums._signs is not None:
                    raise RuntimeError("aclnnNanToNum or aclnnNanToNumGetWorkspaceSize not in libopapi.so\nmore")
                return plain(sums, *args)

            return call

        for name in ("of", "of_rows"):
            monkeypatch.setattr(device_sums.Sums, name, lacking(getattr(device_sums.Sums, name)))
        monkeypatch.setattr(core, "_AS_ON_DEVICE", True)


def sines(folder: Any, **settings: Any) -> Dump:
    import probe

    capture = probe.Capture(folder, **{"level": "api", "task": "sketch", "quiet": True, **settings})
    capture.start(None)
    torch.arange(3000.0).sin()
    capture.close()
    return Dump(folder)


def test_what_a_device_cannot_measure_the_host_does(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    expected = sines(tmp_path / "host")["Tensor.sin.0.forward"]
    Lacks(monkeypatch)
    dump = sines(tmp_path / "dump")
    found = dump["Tensor.sin.0.forward"]
    for slot in ("input.0", "output.0"):
        for key in ("norm", "max", "hash", "sketch", "sum_error"):
            assert found[slot].row[key] == expected[slot].row[key], (slot, key)
    why = "RuntimeError: aclnnNanToNum or aclnnNanToNumGetWorkspaceSize not in libopapi.so"
    assert dump.manifest["notes"] == [f"cpu cannot measure float32, so the host did: {why}"]
    assert capfd.readouterr().err == f"probe: cpu cannot measure float32, so the host does: {why}\n"


def test_beyond_the_budget_there_are_statistics_or_a_reason(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Lacks(monkeypatch, only_sketches=True)
    # Room for the first of them.
    found = sines(tmp_path / "less", host_bytes=13000)
    made, kept = found["Torch.arange.0.forward"]["output.0"].row, found["Tensor.sin.0.forward"]["output.0"].row
    assert made["sketch"] is not None and made["hash"] is not None
    assert kept["sketch"] is None and kept["hash"] is None and kept["norm"] == pytest.approx(38.7, rel=0.01)
    Lacks(monkeypatch)
    row = sines(tmp_path / "nothing", host_bytes=0)["Tensor.sin.0.forward"]["output.0"].row
    assert row["elements"] is None and "aclnnNanToNum" in row["tensor_note"] and "host_bytes of the step are used up" in row["tensor_note"]


@pytest.mark.parametrize("level", ["api", "op"])
def test_writes_that_torch_does_not_count(record: Record, calls: Calls, level: str) -> None:
    def work() -> None:
        x, y = torch.ones(3000), torch.full((3000,), 2.0)
        x.sin()
        with torch.autograd._unsafe_preserve_version_counter(x):
            torch.split_with_sizes_copy(y, [3000], out=[x])
        x.cos()

    stem = "Aten" if level == "op" else "Tensor"
    dump = record(work, level=level, task="statistics")
    assert dump[f"{stem}.sin.0.forward"]["input.0"].max == 1.0
    assert dump[f"{stem}.cos.0.forward"]["input.0"].max == 2.0


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("level", ["mix", "op"])
def test_weights_that_fsdp_moves(record: Record, calls: Calls, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """It writes below autograd, where torch counts nothing, into memory that was seen before."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def run() -> Dump:
        net = model()
        mesh = init_device_mesh("cpu", (1,))
        for part in (net[0], net[3], net):
            fully_shard(part, mesh=mesh)
        return record(training(net, 2), net, level=level, task="statistics")

    there = run()
    monkeypatch.setattr(core, "_AS_ON_DEVICE", False)
    here = run()
    assert there.names == here.names
    compared = 0
    for op, same in zip(here.ops, there.ops, strict=True):
        # Weights as they are read, and as they are made. Between the two stands memory that nothing was written to yet.
        if op.name.startswith(("Functional.linear", "Optimizer", "Aten.addmm")):
            for path, slot in op.slots.items():
                if slot.norm is not None:
                    assert same[path].norm == pytest.approx(slot.norm, rel=SUM_ERROR), (op.name, path)
                    compared += 1
    assert compared > 12


@pytest.mark.parametrize("name", ["observe", "copy", "fetch"])
def test_what_interrupts_the_recorder_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(core, "_AS_ON_DEVICE", True)
    handled: list[int] = []
    plain = getattr(Device, name)

    def handle(*_: Any) -> None:
        handled.append(1)
        # As a handler of SIGTERM may do.
        sys.exit("enough")

    def interrupted(self: Device, given: Any) -> Any:
        if not handled:
            signal.raise_signal(signal.SIGINT)
        return plain(self, given)

    def work() -> None:
        for _ in range(3):
            torch.ones(3000).sin()
            torch.ones(30).cos()

    monkeypatch.setattr(Device, name, interrupted)
    before = signal.signal(signal.SIGINT, handle)
    capture = probe.Capture(tmp_path / "dump", level="api", task="sketch")
    try:
        capture.start()
        with pytest.raises(SystemExit, match="enough"):
            work()
            capture.step()
    finally:
        signal.signal(signal.SIGINT, before)
        capture.close()
    dump = Dump(tmp_path / "dump")
    assert handled == [1] and dump.manifest["notes"] == []
    # The step being recorded is there, and later ones are not where the program did not go on.
    slots = [slot for op in dump.ops for slot in op.slots.values() if slot.row["shape"]]
    assert slots and all(slot.row["elements"] for slot in slots)
    assert ("Tensor.cos.2.forward" in dump) == (name == "fetch")
