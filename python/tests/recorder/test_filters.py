"""Ops that are not wanted are not recorded, and those that are keep their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump, steps
from runs import ConvNet, train


@pytest.fixture
def net() -> ConvNet:
    torch.manual_seed(0)
    return ConvNet()


def run(model: nn.Module) -> None:
    model.zero_grad()
    model(torch.ones(2, 3, 8, 8)).sum().backward()


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_phases(record: Any, net: ConvNet, level: str) -> None:
    whole = record(lambda: run(net), net, level=level)
    for phase, word in (("forward", "forward"), ("backward", "backward"), ("gradients", "parameters_grad")):
        if level == "op" and phase == "gradients":
            continue
        dump = record(lambda: run(net), net, level=level, phases=[phase])
        assert dump.names == [op.name for op in whole.ops if f".{word}" in op.name], phase


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_slots(record: Any, net: ConvNet, level: str) -> None:
    for slot, gone in (("input", "output"), ("output", "input")):
        dump = record(lambda: run(net), net, level=level, slots=[slot])
        paths = {path.partition(".")[0] for op in dump.ops for path in op.slots}
        assert slot in paths and gone not in paths and (("kwarg" in paths) <= (slot == "input")), paths


def test_names_and_paths(record: Any, net: ConvNet) -> None:
    whole = record(lambda: run(net), net, level="mix").names
    relu = record(lambda: run(net), net, level="mix", include=["torch.nn.functional.relu"]).names
    assert relu == [name for name in whole if name.startswith("Functional.relu.")] and len(relu) == 4
    one = record(lambda: run(net), net, level="mix", include=["Functional.relu.1.forward"]).names
    assert one == ["Functional.relu.1.forward"]
    inside = record(lambda: run(net), net, level="mix", include=["net.conv2"]).names
    assert {"Module.conv2.Conv2d.forward.0", "Functional.conv2d.1.forward", "Functional.conv2d.1.backward"} <= set(inside)
    assert {"Module.conv2.Conv2d.backward.0", "Module.conv2.Conv2d.parameters_grad.0"} <= set(inside)
    assert not [name for name in inside if "conv1" in name or "relu" in name.lower()]
    rest = record(lambda: run(net), net, level="mix", exclude=["conv2", "*relu*"]).names
    assert set(rest) == {name for name in whole if name not in inside and "relu" not in name}
    backward = record(lambda: run(net), net, level="mix", include=[{"name": "Functional.conv2d", "phases": ["backward"]}]).names
    assert backward == ["Functional.conv2d.1.backward", "Functional.conv2d.0.backward"]
    ops = record(lambda: run(net), net, level="op", include=["torch.ops.aten.convolution"]).names
    assert ops == ["Aten.convolution.0.forward", "Aten.convolution.1.forward"]


def test_a_range(tmp_path: Path, net: ConvNet) -> None:
    capture = probe.Capture(tmp_path / "dump", net, level="mix", scope=["Module.bn1.BatchNorm2d.forward.0", "Functional.conv2d.1.forward"])
    for _ in range(2):
        capture.start()
        run(net)
        capture.stop()
        capture.step()
    capture.close()
    for step in range(2):
        names = [op.name for op in Dump(tmp_path / "dump", step).ops]
        assert "Module.conv1.Conv2d.forward.0" not in names and "Functional.relu.0.forward" in names
        assert "Functional.conv2d.1.forward" in names and "Module.fc.Linear.forward.0" not in names, names


def test_data_of_some(record: Any, net: ConvNet) -> None:
    dump = record(lambda: run(net), net, level="mix", task="statistics", tensors=["conv2"])
    stored = {op.name for op in dump.ops for slot in op.slots.values() if slot.offset is not None}
    assert "Functional.conv2d.1.forward" in stored and "Functional.conv2d.0.forward" not in stored
    assert dump["Functional.conv2d.1.forward"]["output.0"].data.shape == (2, 8, 8, 8)


def test_a_budget_for_data(tmp_path: Path, net: ConvNet) -> None:
    with probe.capture(tmp_path / "dump", model=net, level="mix", task="tensor", max_bytes="20kB") as capture:
        for _ in range(2):
            run(net)
            capture.step()
    for step in range(2):
        dump = Dump(tmp_path / "dump", step)
        slots = [slot for op in dump.ops for slot in op.slots.values() if slot.kind == "tensor"]
        stored = {(slot.shard, slot.offset): slot.bytes for slot in slots if slot.offset is not None}
        left = [slot for slot in slots if slot.offset is None]
        assert 10_000 < sum(stored.values()) <= 20_000
        small = [slot for slot in left if slot.data_size < 2048]
        assert small and all(slot.tensor_note is None and slot.data.numel() == slot.elements for slot in small)
        large = [slot for slot in left if slot.data_size >= 2048]
        assert large and all("budget" in slot.tensor_note and (slot.sketch or slot.same_as is not None) for slot in large), "the dump says so"
    (note,) = dump.manifest["notes"]
    assert "was left out, beyond the byte budget" in note


def test_ranks(tmp_path: Path, net: ConvNet, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        with probe.capture(tmp_path / "dump", model=net, ranks=[0, 2], level="module", task="statistics"):
            run(net)
    assert sorted(path.name for path in (tmp_path / "dump" / "step0").iterdir()) == ["rank0", "rank2"]


def test_saved_values(tmp_path: Path, net: ConvNet) -> None:
    with probe.capture(tmp_path / "dump", model=net, level="save", task="tensor"):
        x = torch.ones(2, 3, requires_grad=True)
        y = x * 2
        probe.save("mine", {"y": y, "n": 3, "text": "a", "list": [1.5, None]})
        probe.save("mine", y)
        (y**2).sum().backward()
        run(net)
    dump = Dump(tmp_path / "dump")
    assert {name.split(".")[0] for name in dump.names} <= {"mine", "mine_grad"} or all("mine" in name for name in dump.names)
    assert dump["mine.0.debug"]["value.y"].data.equal(y.detach()) and dump["mine.0.debug"]["value.n"].value == "3"
    gradients = [op for op in dump.ops if "_grad" in op.name]
    assert len(gradients) == 2 and gradients[0]["value"].data.eq(4).all(), dump.names


def test_stacks_may_be_left_out(record: Any, net: ConvNet) -> None:
    dump = record(lambda: run(net), net, level="mix", stacks=False)
    assert not [op for op in dump.ops if op.stack]
