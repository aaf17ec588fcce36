"""The private side of torch: in one place, and every quick way with a slow one beside it that says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import probe
from dumps import Dump
from probe import private
from probe.private import guards
from probe.private.streams import Streams

#: Interfaces that torch promises to nobody. `_core` is our own, and `__torch_function__` and the like are public.
PRIVATE = re.compile(r"\btorch\._(?!_)\w+|\b_python_dispatch\._|\boverrides\._|\._(sequence_nr|execution_engine|schema|op|local_tensor|offsets)\b")


def test_what_is_private_stands_in_one_place() -> None:
    package = Path(probe.__file__).parent
    found = {}
    for path in package.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#") and PRIVATE.search(line)]
        # The private side of MindSpore, whose names are alike, is in its own module.
        if lines and "private" not in path.parts[-2:] and path.parts[-2:] != ("mindspore", "graph.py"):
            found[str(path.relative_to(package))] = lines
    assert found == {}


def training() -> Callable[[], None]:
    torch.manual_seed(0)
    first, second = nn.Linear(30, 40), nn.Linear(40, 30)
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], 1e-2)
    data = torch.randn(50, 30)

    def work() -> None:
        hidden = checkpoint(lambda x: first(x).relu(), data.t().t(), use_reentrant=False)
        nn.functional.mse_loss(second(hidden[:, ::1]), data).backward()
        optimizer.step()

    return work


def recorded(folder: Path, level: str) -> tuple[list[Any], Dump, tuple[bool, bool]]:
    capture = probe.Capture(folder, level=level, task="sketch", quiet=True)
    work = training()
    capture.start(None)
    work()
    ways = capture._session._core.quick_ways()
    capture.close()
    dump = Dump(folder)
    # Whoever calls this stands in different lines.
    return [{"stack": op.stack[:2], **{path: slot.row for path, slot in op.slots.items()}} for op in dump.ops], dump, ways


@pytest.mark.parametrize("level", ["mix", "op"])
def test_the_safe_way_records_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.delenv(private.VARIABLE, raising=False)
    quick, dump, ways = recorded(tmp_path / "quick", level)
    assert ways == (True, True) and dump.manifest["notes"] == []
    monkeypatch.setenv(private.VARIABLE, "1")
    slow, dump, ways = recorded(tmp_path / "slow", level)
    assert ways == (False, False) and dump.manifest["notes"] == ["recorded the safe way: PROBE_SAFE is set"]
    assert quick == slow


def test_an_unknown_version_takes_the_safe_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(private.VARIABLE, raising=False)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.99.0"))
    *_, ways = recorded(tmp_path / "unknown", "api")
    assert ways == (False, False)
    assert "probe: torch 2.99 has not been tried: tensors and frames are read by their attributes" in capfd.readouterr().err
    monkeypatch.setenv(private.VARIABLE, "0")
    *_, ways = recorded(tmp_path / "wanted", "api")
    assert ways == (True, True)


class Module:
    """Stands for `torch.npu`: makes an object of the current stream at every call, and counts them."""

    def __init__(self) -> None:
        self.current, self.made = (7, 0, 20), 0

    def current_stream(self, device: torch.device) -> Any:
        self.made += 1
        return SimpleNamespace(stream_id=self.current[0], device_index=self.current[1], device_type=self.current[2])


def test_one_guard_keeps_away_what_three_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept_away(makes: tuple[Callable[[], Any], ...]) -> int:
        entered = [make() for make in makes]
        for guard in entered:
            guard.__enter__()
        keys: int = torch._C._dispatch_tls_local_exclude_set().raw_repr()
        for guard in reversed(entered):
            guard.__exit__(None, None, None)
        return keys

    before = kept_away(())
    three = kept_away(guards._BELOW)
    quick = guards._below()
    assert len(quick) == 1 and kept_away(quick) == three != before == kept_away(())
    monkeypatch.setenv(private.VARIABLE, "1")
    assert guards._below() == guards._BELOW


def test_an_object_of_a_stream_is_asked_for_once() -> None:
    module, streams, device = Module(), Streams(), torch.device("cuda", 0)
    streams._asked["cuda"] = lambda index: module.current
    first = streams.current(device, module)
    assert streams.current(device, module) is first and module.made == 1
    module.current = (8, 0, 20)
    other = streams.current(device, module)
    assert other.stream_id == 8 and module.made == 2
    module.current = (7, 0, 20)
    assert streams.current(device, module) is first and module.made == 2


def test_streams_whose_numbers_are_others_are_asked_for_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module, streams, device = Module(), Streams(), torch.device("cuda", 0)
    streams._asked["cuda"] = lambda index: (1, 2, 3)
    assert [streams.current(device, module).stream_id for _ in range(3)] == [7, 7, 7] and module.made == 3
    monkeypatch.setenv(private.VARIABLE, "1")
    slow = Streams()
    assert slow.current(device, module).stream_id == 7 and slow._asked == {"cuda": None}
